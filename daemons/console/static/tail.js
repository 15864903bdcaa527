// Inserts new messages into the table of a tail: as text, the newest first, up to a maximum.
const MOST = 500;
const tail = document.getElementById("tail");
const rows = tail?.querySelector("[data-tail-rows]");
const rate = tail?.querySelector("[data-tail-rate]");
const failures = tail?.querySelector("[data-tail-failures]");
const pause = tail?.querySelector("[data-tail-pause]");

function cell(text, kind = "td", className = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function line(message) {
  const row = document.createElement("tr");
  const first = document.createElement("th");
  first.scope = "row";
  const link = document.createElement("a");
  link.href = tail.dataset.base + message.path;
  link.textContent = message.stored;
  first.append(link);
  row.append(first, cell(message.queue), cell(message.offset, "td", "right"), cell(message.tags),
    cell(message.keys), cell(message.size, "td", "right"),
    cell(message.body ?? tail.dataset.notForYou, "td", "body"));
  return row;
}

// A stream that restarts (after a pause, a hidden page, a lost connection) has a gap before it,
// and counts from 0 on.
let begun = false;
const before = { matched: 0, dropped: 0 };
const last = { matched: 0, dropped: 0 };

function begin() {
  before.matched += last.matched;
  before.dropped += last.dropped;
  if (begun) {
    const row = document.createElement("tr");
    const gap = cell(tail.dataset.gap, "td", "gap");
    gap.colSpan = 7;
    row.append(gap);
    rows.prepend(row);
  }
  begun = true;
}

tail?.addEventListener("live-messages", (event) => {
  const { begins, messages, rate: now, failures: problems = [] } = event.detail;
  if (begins) begin();
  last.matched = event.detail.matched;
  last.dropped = event.detail.dropped;
  const matched = before.matched + last.matched;
  const dropped = before.dropped + last.dropped;
  rows.prepend(...messages.map(line).reverse());
  while (rows.rows.length > MOST) rows.deleteRow(-1);
  rate.textContent = `${now}/s, ${matched}, ${dropped}`;
  failures.prepend(...problems.map((text) => cell(text, "li")));
  while (failures.children.length > 10) failures.lastChild.remove();
});

if (pause) {
  pause.hidden = false;
  const names = [pause.textContent, pause.dataset.resume];
  let paused = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = names[paused ? 1 : 0];
    tail.dispatchEvent(new CustomEvent(paused ? "live-pause" : "live-resume"));
  });
}
