import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;

/**
 * Drives a broker over its wire and measures it. One thread and one selector, frames encoded once, replies
 * looked at only for their code, opaque and next offset: cheap enough that on two cores the broker is what
 * gets measured. Java because whoever compares with the Java broker has a JDK already.
 *
 * <pre>
 *   java Driver.java send 127.0.0.1:10911 connections=8 window=128 size=1024 seconds=5 properties=2
 *   java Driver.java send 127.0.0.1:10911 connections=8 window=4 size=1024 seconds=5 properties=2 messages=32
 *   java Driver.java pull 127.0.0.1:10911 connections=4 batch=32 seconds=5
 *   java Driver.java follow 127.0.0.1:10911 connections=8 window=128 size=1024 seconds=5 properties=2 rate=40000
 *   java Driver.java idle 127.0.0.1:10911 connections=1000      (until standard input closes)
 * </pre>
 *
 * A latency runs from the moment a frame is handed to the kernel until its reply has been read; a reply lets
 * the next frame go (closed loop). With rate=100000 so many frames are due a second, at even distances, and a
 * latency runs from the moment a frame is due: what waits because a broker stands still counts for each frame
 * that was due meanwhile. The result is one JSON object; `total` counts the warm-up too.
 *
 * properties=2 are those that a Java producer gives a message with a key and a tag, with ids and keys that
 * differ from message to message; 1 are what the filter of `sql=1` looks at; 0 are none, which no client sends.
 * messages=32 sends so many in one batch.
 *
 * follow sends as send does, and pulls what is sent: on one connection for each queue, from its end on, each pull
 * held by the broker until there is something. Counted are messages that were pulled, those that were sent apart from
 * them; a latency runs from the moment one was handed to the kernel, or was due, until it has been pulled.
 */
public final class Driver {
    private static final String TOPIC = "bench";
    private static final String GROUP = "bench-driver";
    private static final int QUEUES = 8;
    private static final long LOOK_NANOS = 20_000; // between two looks at what is due; a latency has it in it
    private static final int STEPS = 128;
    private static final byte[] CODE = "\"code\":".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] OPAQUE = "\"opaque\":".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] NEXT = "\"nextBeginOffset\":\"".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] OFFSET = "\"offset\":\"".getBytes(StandardCharsets.US_ASCII);
    private static final int BODY_AT = 88; // in a record whose hosts are IPv4 addresses

    private final Map<String, Integer> options = new HashMap<>(Map.of(
        "connections", 8, "window", 128, "size", 1024, "batch", 32, "seconds", 5, "warm", 2,
        "properties", 0, "sql", 0, "messages", 1, "rate", 0));
    private final Map<Integer, Integer> errors = new TreeMap<>();
    // How many latencies there are of each size, in 128 steps between two powers of two: to 0.8 %. A
    // list of them would grow, and what moves it stops this program for longer than a broker takes.
    private final long[] latencies = new long[64 * STEPS];
    private long measured;
    private long messages;
    private long total;
    private long start;
    private long stop;
    private boolean follows;
    private long sends; // beside what is counted

    public static void main(String[] arguments) throws IOException {
        Driver driver = new Driver();
        for (String argument : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            String[] parts = argument.split("=", 2);
            driver.options.put(parts[0], Integer.parseInt(parts[1]));
        }
        String[] address = arguments[1].split(":");
        driver.run(arguments[0], new InetSocketAddress(address[0], Integer.parseInt(address[1])));
    }

    private void run(String mode, InetSocketAddress address) throws IOException {
        if (mode.equals("idle")) {
            holdIdle(address);
            return;
        }
        start = System.nanoTime() + options.get("warm") * 1_000_000_000L;
        stop = start + options.get("seconds") * 1_000_000_000L;
        List<Worker> workers = new ArrayList<>();
        try (Selector selector = Selector.open()) {
            follows = mode.equals("follow");
            for (int number = 0; number < options.get("connections"); number++) {
                workers.add(mode.equals("pull") ? new Reader(address, number) : new Sender(address, number));
            }
            for (int queue = 0; follows && queue < QUEUES; queue++) {
                workers.add(queue, new Follower(address, queue));
            }
            for (Worker worker : workers) {
                worker.channel.configureBlocking(false);
                worker.key = worker.channel.register(selector, SelectionKey.OP_READ, worker);
                worker.begin();
            }
            while (System.nanoTime() < stop) {
                if (options.get("rate") == 0) {
                    selector.select(key -> ((Worker) key.attachment()).ready(), 500);
                    continue;
                }
                selector.selectNow(key -> ((Worker) key.attachment()).ready());
                for (Worker worker : workers) {
                    worker.turn();
                }
                LockSupport.parkNanos(LOOK_NANOS);
            }
        }
        report();
    }

    private void holdIdle(InetSocketAddress address) throws IOException {
        int count = options.get("connections");
        SocketChannel[] open = new SocketChannel[count];
        for (int number = 0; number < count; number++) {
            String body = "{\"clientID\":\"127.0.0.1@idle-" + number + "\",\"producerDataSet\":[{\"groupName\":\""
                + GROUP + "\"}],\"consumerDataSet\":[]}";
            open[number] = SocketChannel.open(address);
            open[number].write(frame(34, 0, "", body.getBytes(StandardCharsets.US_ASCII)));
            if (open[number].read(ByteBuffer.allocate(1 << 16)) <= 0) {
                throw new IOException("connection " + number + " was closed");
            }
        }
        System.out.println("{\"connections\":" + count + "}");
        while (System.in.read() >= 0) {
            continue; // whoever started this closes the stream when it has looked
        }
    }

    private void report() {
        StringBuilder failures = new StringBuilder();
        errors.forEach((code, count) -> failures.append(failures.length() == 0 ? "" : ",")
            .append('"').append(code).append("\":").append(count));
        System.out.printf(
            "{\"per_second\":%d,\"sent_per_second\":%d,\"messages\":%d,\"total\":%d,\"errors\":{%s},\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f}%n",
            messages / options.get("seconds"), sends / options.get("seconds"), messages, total, failures,
            percentile(0.5), percentile(0.99), percentile(0.999));
    }

    /** The middle of the step in which it lies, in ms. */
    private double percentile(double part) {
        long before = Math.min((long) (part * measured), measured - 1);
        for (int step = 0; step < latencies.length; step++) {
            before -= latencies[step];
            if (before < 0) {
                int power = Math.max(0, step / STEPS - 1);
                return (((long) (step - power * STEPS) << power) + (1L << power) / 2) / 1e6;
            }
        }
        return 0;
    }

    private static int step(long nanos) {
        int power = Math.max(0, 64 - Long.numberOfLeadingZeros(nanos) - Integer.numberOfTrailingZeros(2 * STEPS));
        return power * STEPS + (int) (nanos >> power);
    }

    private void count(long now, long sent, long received) {
        total += received;
        if (now < start || now > stop) {
            return;
        }
        measured++;
        latencies[step(now - sent)]++;
        messages += received;
    }

    private static ByteBuffer frame(int code, int opaque, String fields, byte[] body) {
        byte[] header = ("{\"code\":" + code + ",\"extFields\":{" + fields + "},\"flag\":0,\"language\":\"JAVA\","
            + "\"opaque\":" + opaque + ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}")
            .getBytes(StandardCharsets.US_ASCII);
        ByteBuffer frame = ByteBuffer.allocate(8 + header.length + body.length);
        frame.putInt(4 + header.length + body.length).putInt(header.length).put(header).put(body);
        return frame.flip();
    }

    /** The number behind a key of a JSON header that lies in data from `from` to `to`. */
    private static long number(byte[] data, int from, int to, byte[] key) {
        search:
        for (int at = from; at <= to - key.length; at++) {
            for (int index = 0; index < key.length; index++) {
                if (data[at + index] != key[index]) {
                    continue search;
                }
            }
            long value = 0;
            boolean negative = false;
            for (int digit = at + key.length; digit < to; digit++) {
                byte letter = data[digit];
                if (letter == '-') {
                    negative = true;
                } else if (letter >= '0' && letter <= '9') {
                    value = 10 * value + letter - '0';
                } else if (letter != ' ') {
                    break;
                }
            }
            return negative ? -value : value;
        }
        throw new IllegalStateException("a reply without " + new String(key, StandardCharsets.US_ASCII));
    }

    /** One connection: cuts what it reads into replies, and writes what does not fit later. */
    private abstract class Worker {
        final SocketChannel channel;
        SelectionKey key;
        private ByteBuffer in = ByteBuffer.allocate(1 << 20);
        private final java.util.ArrayDeque<ByteBuffer> out = new java.util.ArrayDeque<>();

        Worker(InetSocketAddress address) throws IOException {
            channel = SocketChannel.open(address);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        }

        abstract void begin() throws IOException;

        abstract void reply(byte[] data, int from, int headerEnd, int end, long now) throws IOException;

        void write(ByteBuffer... frames) throws IOException {
            if (out.isEmpty()) {
                channel.write(frames);
            }
            for (ByteBuffer frame : frames) {
                if (frame.hasRemaining()) {
                    out.add(frame);
                }
            }
            key.interestOps(out.isEmpty() ? SelectionKey.OP_READ : SelectionKey.OP_READ | SelectionKey.OP_WRITE);
        }

        void ready() {
            try {
                if (key.isWritable()) {
                    while (!out.isEmpty() && (channel.write(out.peek()) > 0 || !out.peek().hasRemaining())) {
                        if (!out.peek().hasRemaining()) {
                            out.poll();
                        }
                    }
                    write();
                }
                if (key.isReadable()) {
                    read();
                }
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }

        private void read() throws IOException {
            if (channel.read(in) < 0) {
                throw new IOException("the broker closed a connection");
            }
            long now = System.nanoTime();
            in.flip();
            while (in.remaining() >= 8) {
                int from = in.position();
                int end = from + 4 + in.getInt(from);
                if (end > in.limit()) {
                    if (end - from > in.capacity()) {
                        in = ByteBuffer.allocate(2 * (end - from)).put(in).flip();
                    }
                    break;
                }
                reply(in.array(), from + 8, from + 8 + (in.getInt(from + 4) & 0xFFFFFF), end, now);
                in.position(end);
            }
            in.compact();
            turn();
        }

        /** Called when every reply that came with one read has been looked at. */
        void turn() throws IOException {
        }
    }

    /** A frame, and where in it the numbers are that differ from message to message. */
    private static final class Template {
        private static final byte[] DIGITS = "0123456789ABCDEF".getBytes(StandardCharsets.US_ASCII);
        private static final byte[] ID = "@@@@@@@@@@@@".getBytes(StandardCharsets.US_ASCII);

        final ByteBuffer frame;
        private final int[] numbers;

        Template(ByteBuffer frame) {
            this.frame = frame;
            byte[] data = frame.array();
            int[] found = new int[frame.limit()];
            int count = 0;
            for (int at = 0; at <= frame.limit() - ID.length; at++) {
                if (data[at] == '@' && Arrays.equals(data, at, at + ID.length, ID, 0, ID.length)) {
                    found[count++] = at;
                    at += ID.length - 1;
                }
            }
            numbers = Arrays.copyOf(found, count);
        }

        /** Write numbers from `next` on into it, two equal ones for each message. Returns the next one. */
        long fill(long next) {
            byte[] data = frame.array();
            for (int index = 0; index < numbers.length; index++) {
                long value = next + index / 2;
                for (int at = numbers[index] + ID.length - 1; at >= numbers[index]; at--) {
                    data[at] = DIGITS[(int) (value & 15)];
                    value >>>= 4;
                }
            }
            return next + numbers.length / 2;
        }
    }

    /** So many sends in flight. */
    private final class Sender extends Worker {
        private final Template[] frames;
        private final long[] sent;
        private final int[] free;
        private int freed;
        private long next;
        private long due;
        private long gap; // between frames that are due, ns; 0: a reply lets the next one go

        Sender(InetSocketAddress address, int number) throws IOException {
            super(address);
            int window = options.get("window");
            next = ((System.nanoTime() & 0xFFFF) << 32) + ((long) number << 28);
            if (options.get("rate") > 0) {
                gap = 1_000_000_000L * options.get("connections") / options.get("rate");
                due = System.nanoTime() + gap * number / options.get("connections");
            }
            frames = new Template[window];
            sent = new long[window];
            free = new int[window];
            for (int slot = 0; slot < window; slot++) {
                frames[slot] = new Template(request(number, slot));
                free[freed++] = slot;
            }
        }

        private ByteBuffer request(int number, int slot) {
            int messages = options.get("messages");
            byte[] body = new byte[options.get("size")];
            for (int at = 0; at < body.length; at++) {
                body[at] = (byte) ('a' + at % 26);
            }
            String start = "\"a\":\"" + GROUP + "\",\"b\":\"" + TOPIC + "\",\"c\":\"TBW102\",\"d\":\"" + QUEUES
                + "\",\"e\":\"" + number % QUEUES + "\",\"f\":\"0\",\"g\":\"" + System.currentTimeMillis()
                + "\",\"h\":\"0\",\"j\":\"0\",\"k\":\"false\",\"l\":\"16\",\"m\":\"" + (messages > 1) + "\",\"i\":\"";
            String text = properties(number, slot);
            if (messages == 1) {
                return frame(310, slot, start + text.replace("\u0001", "\\u0001").replace("\u0002", "\\u0002") + "\"", body);
            }
            byte[] own = text.getBytes(StandardCharsets.US_ASCII);
            ByteBuffer batch = ByteBuffer.allocate(messages * (22 + body.length + own.length));
            for (int message = 0; message < messages; message++) {
                batch.putInt(22 + body.length + own.length).putLong(0).putInt(0);
                batch.putInt(body.length).put(body).putShort((short) own.length).put(own);
            }
            return frame(320, slot, start + "WAIT\\u0001true\"", batch.array());
        }

        private String properties(int number, int slot) {
            switch (options.get("properties")) {
                case 0:
                    return "";
                case 1:
                    return "number\u0001" + slot % 10 + "\u0002word\u0001x\u0002UNIQ_KEY\u0001"
                        + String.format("%032X", ((long) number << 32) + slot) + "\u0002WAIT\u0001true";
                default:
                    return "KEYS\u0001order-@@@@@@@@@@@@\u0002UNIQ_KEY\u00017F0000010A8C18B4AAC2@@@@@@@@@@@@"
                        + "\u0002WAIT\u0001true\u0002TAGS\u0001Tag" + (char) ('A' + slot % 5);
            }
        }

        @Override
        void begin() throws IOException {
            turn();
        }

        @Override
        void reply(byte[] data, int from, int headerEnd, int end, long now) {
            int slot = (int) number(data, from, headerEnd, OPAQUE);
            int code = (int) number(data, from, headerEnd, CODE);
            if (code == 0) {
                if (!follows) {
                    count(now, sent[slot], options.get("messages"));
                } else if (now >= start) {
                    sends += options.get("messages");
                }
            } else if (now >= start) {
                errors.merge(code, 1, Integer::sum);
            }
            free[freed++] = slot;
        }

        @Override
        void turn() throws IOException {
            long now = System.nanoTime();
            if (gap != 0 && options.containsKey("giveup") && now >= due) {
                // Who finds no place in flight does not wait for one: there are always more.
                due += gap * Math.max(0, (now - due) / gap + 1 - freed);
            }
            if (freed == 0 || now >= stop) {
                return;
            }
            int count = gap == 0 ? freed : (int) Math.max(0, Math.min(freed, (now - due) / gap + 1));
            if (gap != 0 && (now < due || count == 0)) {
                return;
            }
            ByteBuffer[] out = new ByteBuffer[count];
            for (int index = 0; index < count; index++) {
                int slot = free[--freed];
                sent[slot] = gap == 0 ? now : due;
                due += gap;
                next = frames[slot].fill(next);
                if (follows) {
                    ByteBuffer frame = frames[slot].frame;
                    frame.putLong(frame.limit() - options.get("size"), sent[slot]);
                }
                out[index] = frames[slot].frame.duplicate();
            }
            write(out);
        }
    }

    /** One pull in flight, from its queues in turn, from the first message to the last and again. */
    private final class Reader extends Worker {
        private final long[] offsets = new long[QUEUES];
        private final int step;
        private int queue;
        private long sent;

        Reader(InetSocketAddress address, int number) throws IOException {
            super(address);
            step = options.get("connections");
            queue = number % QUEUES;
        }

        @Override
        void begin() throws IOException {
            String fields = "\"consumerGroup\":\"" + GROUP + "\",\"topic\":\"" + TOPIC + "\",\"queueId\":\"" + queue
                + "\",\"queueOffset\":\"" + offsets[queue] + "\",\"maxMsgNums\":\"" + options.get("batch")
                + "\",\"sysFlag\":\"4\",\"commitOffset\":\"0\",\"suspendTimeoutMillis\":\"0\",\"subVersion\":\"0\","
                + (options.get("sql") == 0 ? "\"subscription\":\"*\",\"expressionType\":\"TAG\""
                    : "\"subscription\":\"number > 5 AND word = 'x'\",\"expressionType\":\"SQL92\"");
            sent = System.nanoTime();
            write(frame(11, 0, fields, new byte[0]));
        }

        @Override
        void reply(byte[] data, int from, int headerEnd, int end, long now) throws IOException {
            int code = (int) number(data, from, headerEnd, CODE);
            if (code == 0) {
                int received = 0;
                for (int at = headerEnd; at < end; received++) {
                    at += ByteBuffer.wrap(data, at, 4).getInt();
                }
                count(now, sent, received);
                offsets[queue] = number(data, from, headerEnd, NEXT);
            } else if (code >= 19 && code <= 21) {
                offsets[queue] = 0;
            } else if (now >= start) {
                errors.merge(code, 1, Integer::sum);
            }
            queue = (queue + step) % QUEUES;
            if (now < stop) {
                begin();
            }
        }
    }

    /** One pull after the other from a queue, held until there is something, from its end on. */
    private final class Follower extends Worker {
        private final int queue;
        private long offset = -1;

        Follower(InetSocketAddress address, int queue) throws IOException {
            super(address);
            this.queue = queue;
        }

        @Override
        void begin() throws IOException {
            String place = "\"topic\":\"" + TOPIC + "\",\"queueId\":\"" + queue + "\"";
            if (offset < 0) {
                write(frame(30, 0, place, new byte[0]));
                return;
            }
            write(frame(11, 0, place + ",\"consumerGroup\":\"" + GROUP + "\",\"queueOffset\":\"" + offset
                + "\",\"maxMsgNums\":\"" + options.get("batch") + "\",\"sysFlag\":\"6\",\"commitOffset\":\"0\","
                + "\"suspendTimeoutMillis\":\"15000\",\"subVersion\":\"0\",\"subscription\":\"*\","
                + "\"expressionType\":\"TAG\"", new byte[0]));
        }

        @Override
        void reply(byte[] data, int from, int headerEnd, int end, long now) throws IOException {
            int code = (int) number(data, from, headerEnd, CODE);
            if (offset < 0) {
                offset = code == 0 ? number(data, from, headerEnd, OFFSET) : 0;
            } else if (code == 0 || code >= 19 && code <= 21) {
                ByteBuffer records = ByteBuffer.wrap(data);
                for (int at = headerEnd; code == 0 && at < end; at += records.getInt(at)) {
                    count(now, records.getLong(at + BODY_AT), 1);
                }
                offset = number(data, from, headerEnd, NEXT);
            } else if (now >= start) {
                errors.merge(code, 1, Integer::sum);
            }
            if (now < stop) {
                begin();
            }
        }
    }
}
