// Functions of pages beyond their HTML: keys, copying, time zones, and live updates.
// All pages work without this script.
const body = document.body;
const typing = (e) => e.target.closest("input, textarea, select, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape") {
    for (const open of document.querySelectorAll("details.menu-button[open]")) open.open = false;
    return;
  }
  if (body.dataset.keys !== "on" || typing(event)) return;
  const acts = {
    "/": () => document.getElementById("find")?.focus(),
    "?": () => document.getElementById("help")?.showModal(),
    g: () => document.querySelector(".side a")?.focus(),
    r: () => location.reload(),
  };
  if (acts[event.key]) {
    event.preventDefault();
    acts[event.key]();
  }
});

document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("details.menu-button[open]"))
    if (!open.contains(event.target)) open.open = false;
});

// Add a button next to each command that can be copied. Clipboards need a secure context.
function addCopyButtons(root) {
  if (!navigator.clipboard) return;
  for (const code of root.querySelectorAll("[data-copy]")) {
    if (code.nextElementSibling?.classList.contains("copy-button")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-button";
    button.textContent = body.dataset.copyText;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = body.dataset.copiedText;
      setTimeout(() => (button.textContent = body.dataset.copyText), 1500);
    });
    code.after(button);
  }
}

// The browser's own time zone can be selected; without script there is only UTC.
const zones = document.querySelector("select[data-zones]");
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zones && own && ![...zones.options].some((option) => option.value === own))
  zones.add(new Option(own, own));

// <… data-live="ADDRESS OF A STREAM" data-parts="#a, #b">: at each event "changed" the parts of the page
// are fetched again and replaced, unless the user is working in one of them.
// A hidden page has no stream. Other events are dispatched to the element as a CustomEvent.
function follow(element) {
  let source = null;
  let busy = false;
  const state = document.querySelector("[data-live-state]");
  const tell = (on) => state && (state.dataset.state = on ? "on" : "off");
  async function renew() {
    if (busy) return;
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { "X-Requested-With": "mq" } });
      if (answer.redirected || !answer.ok) return stop();
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll(element.dataset.parts)) {
        const other = part.id && fresh.getElementById(part.id);
        if (!other || part.contains(document.activeElement) || chosen(part)) continue;
        keepOpen(part, other);
        part.replaceWith(document.adoptNode(other));
        addCopyButtons(other);
      }
    } catch {
      tell(false);
    } finally {
      busy = false;
    }
  }
  const chosen = (part) => {
    const selection = getSelection();
    return !selection.isCollapsed && selection.containsNode(part, true);
  };
  function keepOpen(part, other) {
    const all = other.querySelectorAll("details");
    part.querySelectorAll("details").forEach((one, n) => all[n] && (all[n].open = one.open));
  }
  function start() {
    if (source || document.hidden || element.dataset.paused) return;
    source = new EventSource(element.dataset.live);
    source.onopen = () => tell(true);
    source.onerror = () => tell(false);
    source.addEventListener("changed", renew);
    source.addEventListener("ended", stop);
    for (const name of (element.dataset.events || "").split(" ").filter(Boolean))
      source.addEventListener(name, (event) =>
        element.dispatchEvent(new CustomEvent(`live-${name}`, { detail: JSON.parse(event.data) })));
  }
  function stop() {
    source?.close();
    source = null;
    tell(false);
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", start);
  element.addEventListener("live-pause", () => ((element.dataset.paused = "1"), stop()));
  element.addEventListener("live-resume", () => (delete element.dataset.paused, start()));
  start();
}

addCopyButtons(document);
for (const element of document.querySelectorAll("[data-live]")) follow(element);
// The menu is folded on narrow screens, where it would cover the page.
if (matchMedia("(max-width: 48rem)").matches) document.querySelector(".side-fold")?.removeAttribute("open");
