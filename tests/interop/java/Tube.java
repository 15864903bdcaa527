import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.BitSet;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.consumer.ConsumePosition;
import org.apache.inlong.tubemq.client.consumer.ConsumerResult;
import org.apache.inlong.tubemq.client.consumer.PullMessageConsumer;
import org.apache.inlong.tubemq.client.factory.TubeMultiSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentCallback;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;

/**
 * Tube MASTERS [USER PASSWORD]: runs the commands that come on standard input, words separated by tabs, and prints DONE or "FAILED why"
 * after each.
 *
 * publish NAME TOPIC                     a producer, once the topic may be sent to
 * send NAME TOPIC FIRST COUNT SIZE ITEMS sends messages whose bodies begin with their number, from FIRST on, each with
 *                                        the next of the filter ITEMS (a,b or -); prints "SENT taken failed again"
 * consume NAME GROUP TOPIC ITEMS WHERE   a consumer that pulls and confirms; WHERE is first or latest
 * got NAME                               prints "GOT messages bits": which numbers it has got, as base64 of a bit set
 * parts NAME                             prints "PART key" for each partition it has
 * stop NAME                              ends a producer or a consumer
 *
 * The packages are those of 1.7.0; for 0.8.0 "inlong." is left out.
 */
public class Tube {
    // What ids are made of; a loopback address is refused.
    private static final String HOST = "10.0.0.1";
    private static String masters;
    private static String[] account;
    private static final Map<String, MessageProducer> producers = new TreeMap<>();
    private static final Map<String, TubeMultiSessionFactory> factories = new TreeMap<>();
    private static final Map<String, Puller> pullers = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        masters = args[0];
        account = args.length == 3 ? Arrays.copyOfRange(args, 1, 3) : null;
        System.out.println("READY");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            try {
                run(words);
                System.out.println("DONE");
            } catch (Throwable error) {
                System.out.println("FAILED " + String.valueOf(error).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private static void run(String[] words) throws Throwable {
        switch (words[0]) {
            case "publish":
                publish(words[1], words[2]);
                break;
            case "send":
                send(producers.get(words[1]), words);
                break;
            case "consume":
                Puller puller = new Puller(words);
                pullers.put(words[1], puller);
                puller.start();
                break;
            case "got":
                System.out.println(pullers.get(words[1]).got());
                break;
            case "parts":
                for (String key : pullers.get(words[1]).consumer.getCurConsumedPartitions().keySet()) {
                    System.out.println("PART\t" + key);
                }
                break;
            case "stop":
                if (pullers.containsKey(words[1])) {
                    pullers.get(words[1]).end();
                } else {
                    producers.remove(words[1]).shutdown();
                    factories.remove(words[1]).shutdown();
                }
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static TubeMultiSessionFactory factory(TubeClientConfig config) throws Exception {
        config.setRpcTimeoutMs(10000);
        config.setHeartbeatPeriodMs(1000);
        config.setHeartbeatPeriodAfterFail(1000);
        // A broker that was killed is back soon; by default it is left alone for 50 s.
        config.setUnAvailableFbdDurationMs(1000);
        if (account != null) {
            config.setAuthenticInfo(true, account[0], account[1]);
        }
        return new TubeMultiSessionFactory(config);
    }

    private static void publish(String name, String topic) throws Exception {
        TubeMultiSessionFactory factory = factory(new TubeClientConfig(HOST, masters));
        MessageProducer producer = factory.createProducer();
        producer.publish(topic);
        long end = System.currentTimeMillis() + 60000;
        while (!producer.isTopicCurAcceptPublish(topic)) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(topic + " does not accept messages");
            }
            Thread.sleep(20);
        }
        producers.put(name, producer);
        factories.put(name, factory);
    }

    /** Sends without waiting for each; what fails is sent again, until a minute has passed. */
    private static void send(MessageProducer producer, String[] words) throws Exception {
        int first = Integer.parseInt(words[3]);
        int count = Integer.parseInt(words[4]);
        int size = Integer.parseInt(words[5]);
        String[] items = words[6].equals("-") ? new String[0] : words[6].split(",");
        Semaphore room = new Semaphore(2000);
        AtomicInteger taken = new AtomicInteger();
        AtomicInteger again = new AtomicInteger();
        BitSet left = new BitSet();
        left.set(first, first + count);
        String why = "-";
        long end = System.currentTimeMillis() + 120000;
        while (!left.isEmpty() && System.currentTimeMillis() < end) {
            BitSet turn = (BitSet) left.clone();
            BitSet failed = new BitSet();
            String[] last = new String[1];
            for (int i = turn.nextSetBit(0); i >= 0; i = turn.nextSetBit(i + 1)) {
                final int number = i;
                room.acquire();
                try {
                    producer.sendMessage(message(words[2], number, size, items), new MessageSentCallback() {
                        @Override
                        public void onMessageSent(MessageSentResult result) {
                            if (result.isSuccess()) {
                                taken.incrementAndGet();
                            } else {
                                failure(failed, last, number, result.getErrCode() + " " + result.getErrMsg());
                            }
                            room.release();
                        }

                        @Override
                        public void onException(Throwable error) {
                            failure(failed, last, number, String.valueOf(error));
                            room.release();
                        }
                    });
                } catch (Exception error) {
                    failure(failed, last, number, String.valueOf(error));
                    room.release();
                    Thread.sleep(1);
                }
            }
            room.acquire(2000);
            room.release(2000);
            left = failed;
            if (!left.isEmpty()) {
                why = last[0];
                again.addAndGet(left.cardinality());
                Thread.sleep(200);
            }
        }
        System.out.println("SENT\t" + taken.get() + "\t" + left.cardinality() + "\t" + again.get() + "\t"
            + why.replace('\n', ' ').replace('\t', ' '));
    }

    private static synchronized void failure(BitSet failed, String[] last, int number, String why) {
        failed.set(number);
        last[0] = why;
    }

    private static Message message(String topic, int number, int size, String[] items) {
        byte[] body = Arrays.copyOf((number + " ").getBytes(StandardCharsets.UTF_8), Math.max(size, 12));
        Message message = new Message(topic, body);
        if (items.length > 0) {
            message.putSystemHeader(items[number % items.length], "202611231200");
        }
        return message;
    }

    private static class Puller extends Thread {
        final PullMessageConsumer consumer;
        private final TubeMultiSessionFactory factory;
        private final BitSet numbers = new BitSet();
        private int messages;
        private volatile boolean ends;

        Puller(String[] words) throws Exception {
            ConsumerConfig config = new ConsumerConfig(HOST, masters, words[2]);
            config.setConsumePosition(words[5].equals("first") ? ConsumePosition.CONSUMER_FROM_FIRST_OFFSET
                : ConsumePosition.CONSUMER_FROM_LATEST_OFFSET);
            config.setMsgNotFoundWaitPeriodMs(50);
            factory = factory(config);
            consumer = factory.createPullConsumer(config);
            TreeSet<String> items = words[4].equals("-") ? null : new TreeSet<>(Arrays.asList(words[4].split(",")));
            consumer.subscribe(words[3], items);
            consumer.completeSubscribe();
            setDaemon(true);
        }

        @Override
        public void run() {
            while (!ends) {
                try {
                    ConsumerResult result = consumer.getMessage();
                    if (!result.isSuccess()) {
                        continue;
                    }
                    book(result);
                    consumer.confirmConsume(result.getConfirmContext(), true);
                } catch (Throwable error) {
                    System.out.println("ERROR\t" + String.valueOf(error).replace('\n', ' '));
                }
            }
        }

        private synchronized void book(ConsumerResult result) {
            for (Message message : result.getMessageList()) {
                messages++;
                String text = new String(message.getData(), StandardCharsets.UTF_8);
                numbers.set(Integer.parseInt(text.substring(0, text.indexOf(' '))));
            }
        }

        synchronized String got() {
            return "GOT\t" + messages + "\t" + Base64.getEncoder().encodeToString(numbers.toByteArray());
        }

        void end() throws Throwable {
            ends = true;
            join(20000);
            consumer.shutdown();
            factory.shutdown();
        }
    }
}
