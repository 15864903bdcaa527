import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Drives a broker by the Java client itself: threads that wait for each send, and, with `push=1`, a group
 * that consumes what they send, in this process.
 *
 * <pre>
 *   java -cp 'client/*' RealClient.java 127.0.0.1:9876 threads=64 size=1024 seconds=5 push=1
 * </pre>
 *
 * The client takes far more of a processor than a broker for a message: on a machine where it has to share,
 * it is often the limit. The result is one JSON object, with the client's own CPU seconds; a latency is
 * that of a send, or with push=1 from the call of a send until the listener has the message.
 */
public final class RealClient {
    private static final String TOPIC = "bench-client";
    private static final String GROUP = "bench-client";
    private static final int MOST = 1 << 22;

    private static final long[] LATENCIES = new long[MOST];
    private static final AtomicLong MEASURED = new AtomicLong();
    private static final AtomicLong TOTAL = new AtomicLong();
    private static final AtomicLong ERRORS = new AtomicLong();
    private static long start;
    private static long stop;

    private RealClient() {
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Integer> options =
            new HashMap<>(Map.of("threads", 64, "size", 1024, "seconds", 5, "warm", 5, "push", 0));
        for (String argument : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            String[] parts = argument.split("=", 2);
            options.put(parts[0], Integer.parseInt(parts[1]));
        }
        boolean isPush = options.get("push") == 1;
        DefaultMQProducer producer = new DefaultMQProducer(GROUP);
        producer.setNamesrvAddr(arguments[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        producer.send(message(0, options.get("size")), 20_000); // makes the topic
        DefaultMQPushConsumer consumer = isPush ? consumer(arguments[0]) : null;
        start = System.nanoTime() + options.get("warm") * 1_000_000_000L;
        stop = start + options.get("seconds") * 1_000_000_000L;
        Thread[] threads = new Thread[options.get("threads")];
        for (int number = 0; number < threads.length; number++) {
            int first = number << 24;
            threads[number] = new Thread(() -> send(producer, first, options.get("size"), isPush));
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        report(options.get("seconds"));
        if (consumer != null) {
            consumer.shutdown();
        }
        producer.shutdown();
        System.exit(0);
    }

    private static Message message(int number, int size) {
        byte[] body = new byte[Math.max(size, 8)];
        Arrays.fill(body, (byte) 'x');
        ByteBuffer.wrap(body).putLong(System.nanoTime());
        return new Message(TOPIC, "Tag" + (char) ('A' + number % 5), "order-" + number, body);
    }

    private static void send(DefaultMQProducer producer, int first, int size, boolean isPush) {
        for (int number = first; System.nanoTime() < stop; number++) {
            long sent = System.nanoTime();
            try {
                if (producer.send(message(number, size)).getSendStatus() != SendStatus.SEND_OK) {
                    ERRORS.incrementAndGet();
                } else if (!isPush) {
                    count(sent);
                }
            } catch (Exception error) {
                ERRORS.incrementAndGet();
            }
        }
    }

    private static DefaultMQPushConsumer consumer(String nameServer) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);
        consumer.setNamesrvAddr(nameServer);
        consumer.subscribe(TOPIC, "*");
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                count(ByteBuffer.wrap(message.getBody()).getLong());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void count(long since) {
        long now = System.nanoTime();
        TOTAL.incrementAndGet();
        if (now >= start && now <= stop) {
            long index = MEASURED.getAndIncrement();
            if (index < MOST) {
                LATENCIES[(int) index] = now - since;
            }
        }
    }

    private static void report(int seconds) {
        long[] sorted = Arrays.copyOf(LATENCIES, (int) Math.min(MEASURED.get(), MOST));
        Arrays.sort(sorted);
        System.out.printf(
            "{\"per_second\":%d,\"total\":%d,\"errors\":{%s},\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f}%n",
            MEASURED.get() / seconds, TOTAL.get(), ERRORS.get() == 0 ? "" : "\"failed\":" + ERRORS.get(),
            percentile(sorted, 0.5), percentile(sorted, 0.99), percentile(sorted, 0.999));
    }

    private static double percentile(long[] sorted, double part) {
        return sorted.length == 0 ? 0 : sorted[Math.min(sorted.length - 1, (int) (part * sorted.length))] / 1e6;
    }
}
