import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Client NAMESRV SERIALIZATION: many calls of the real client in one JVM, whose start takes seconds. SERIALIZATION is
 * JSON or ROCKETMQ.
 *
 * Reads a line per command, its arguments with tabs between them; a method of this class does it. Prints what comes of
 * it, then DONE or "FAILED exception". A message is printed as
 * "GOT who broker queueId queueOffset msgId tags keys sysFlag storeSize body", separated by tabs, the body cut at 60.
 */
public class Client {
    private final String namesrv;
    private final DefaultMQProducer producer;
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.serialize.type", args[1]);
        Client client = new Client(args[0]);
        System.out.println("READY");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                client.run(line.split("\t"));
                System.out.println("DONE");
            } catch (Exception error) {
                System.out.println("FAILED " + String.valueOf(error).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private Client(String namesrv) throws Exception {
        this.namesrv = namesrv;
        producer = new DefaultMQProducer("java_client_producer");
        producer.setMqClientApiTimeout(10000);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10000);
        // By default it asks for routes each 30 s, also when every send of them fails.
        producer.setPollNameServerInterval(2000);
        producer.start();
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "send":
                send(words[1], words[2], words[3], Integer.parseInt(words[4]), words[5]);
                break;
            case "consume":
                consume(words[1], words[2], words[3], words[4], words[5]);
                break;
            case "queues":
                queues(words[1]);
                break;
            case "rebalance":
                consumers.get(words[1]).getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
                break;
            case "commit":
                consumers.get(words[1]).getDefaultMQPushConsumerImpl().persistConsumerOffset();
                break;
            case "stop":
                consumers.remove(words[1]).shutdown();
                break;
            case "pull":
                pull(words[1], words[2], words[3]);
                break;
            case "lite":
                lite(words[1], words[2], words[3], Integer.parseInt(words[4]));
                break;
            case "offsets":
                offsets(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
                break;
            case "query":
                query(words[1], words[2]);
                break;
            case "view":
                print("view", producer.viewMessage(words[1], words[2]));
                break;
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    /** COUNT messages in one WAY: sync, async, oneway, batch, or a number, the queue to send to. SIZE pads the body. */
    private void send(String topic, String way, String tag, int count, String size) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            StringBuilder body = new StringBuilder(tag + "-" + i);
            while (body.length() < Integer.parseInt(size)) {
                body.append('.');
            }
            byte[] bytes = body.toString().getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, tag, "key-" + tag + "-" + i, bytes);
            message.putUserProperty("number", String.valueOf(i));
            messages.add(message);
        }
        if (way.equals("batch")) {
            printSent(producer.send(messages));
            return;
        }
        CountDownLatch answered = new CountDownLatch(count);
        for (Message message : messages) {
            if (way.equals("async")) {
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        printSent(result);
                        answered.countDown();
                    }

                    @Override
                    public void onException(Throwable error) {
                        System.out.println("NOT SENT " + error);
                        answered.countDown();
                    }
                });
            } else if (way.equals("oneway")) {
                producer.sendOneway(message);
                answered.countDown();
            } else {
                printSent(way.equals("sync") ? producer.send(message) : producer.send(message,
                    (queues, wanted, argument) -> queues.get((Integer) argument), Integer.valueOf(way)));
                answered.countDown();
            }
        }
        answered.await();
    }

    /** What EXPRESSION selects: by SQL92 behind "sql:", else by tags. */
    private static MessageSelector selector(String expression) {
        return expression.startsWith("sql:") ? MessageSelector.bySql(expression.substring(4))
            : MessageSelector.byTag(expression);
    }

    /** A push consumer; MODE is clustering, broadcasting, orderly, or the strategy: circle or hash. */
    private void consume(String name, String group, String topic, String expression, String mode) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setMqClientApiTimeout(10000);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // The client of 5.x drops a heartbeat that comes together with a scheduled one, and with it the news that it has
        // subscribed anew; the broker refuses its pulls until the next, after 30 s by default.
        consumer.setHeartbeatBrokerInterval(2000);
        consumer.setPollNameServerInterval(2000);
        consumer.subscribe(topic, selector(expression));
        if (mode.equals("broadcasting")) {
            // Not by its name: the package of MessageModel differs between 4.9 and 5.
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
        }
        if (mode.equals("circle")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
        }
        if (mode.equals("hash")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueConsistentHash());
        }
        if (mode.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> print(name, message));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> print(name, message));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        consumers.put(name, consumer);
    }

    /** The queues that a push consumer has now, without those of its retry topic; QUEUE broker queueId locked. */
    private void queues(String name) {
        consumers.get(name).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
            .forEach((queue, process) -> {
                if (!queue.getTopic().startsWith("%RETRY%")) {
                    System.out.println("QUEUE\t" + queue.getBrokerName() + "\t" + queue.getQueueId() + "\t"
                        + process.isLocked());
                }
            });
    }

    /** Everything that a group has not read, by the old pull consumer; its offsets are kept at the broker. */
    private void pull(String group, String topic, String expression) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setMqClientApiTimeout(10000);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("pull-" + System.nanoTime());
        consumer.start();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long offset = Math.max(0, consumer.fetchConsumeOffset(queue, true));
            System.out.println("FROM\t" + queue.getQueueId() + "\t" + offset);
            PullStatus status;
            do {
                PullResult result = consumer.pull(queue, expression, offset, 8);
                status = result.getPullStatus();
                if (status == PullStatus.FOUND) {
                    result.getMsgFoundList().forEach(message -> print(group, message));
                }
                offset = result.getNextBeginOffset();
            } while (status == PullStatus.FOUND || status == PullStatus.NO_MATCHED_MSG);
            System.out.println("END\t" + queue.getQueueId() + "\t" + offset + "\t" + status);
            consumer.updateConsumeOffset(queue, offset);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        }
        consumer.shutdown();
    }

    /** COUNT messages that a group has not read, by the lite pull consumer, which then commits. */
    private void lite(String group, String topic, String expression, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setMqClientApiTimeout(10000);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("lite-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, selector(expression));
        consumer.start();
        int got = 0;
        for (long end = System.currentTimeMillis() + 30000; got < count && System.currentTimeMillis() < end;) {
            List<MessageExt> messages = consumer.poll(200);
            messages.forEach(message -> print(group, message));
            got += messages.size();
        }
        consumer.commitSync();
        consumer.shutdown();
    }

    private void offsets(String topic, int queueId, long timestamp) throws Exception {
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(queueId);
        System.out.println("OFFSETS\t" + producer.minOffset(queue) + "\t" + producer.maxOffset(queue) + "\t"
            + producer.searchOffset(queue, timestamp) + "\t" + producer.earliestMsgStoreTime(queue));
    }

    private void query(String topic, String key) throws Exception {
        QueryResult result = producer.queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
        result.getMessageList().forEach(message -> print("query", message));
    }

    private static synchronized void printSent(SendResult result) {
        System.out.println(String.join("\t", Arrays.asList("SENT", result.getSendStatus().name(), result.getMsgId(),
            result.getOffsetMsgId(), result.getMessageQueue().getBrokerName(),
            String.valueOf(result.getMessageQueue().getQueueId()), String.valueOf(result.getQueueOffset()))));
    }

    private static synchronized void print(String who, MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        System.out.println(String.join("\t", Arrays.asList("GOT", who, String.valueOf(message.getBrokerName()),
            String.valueOf(message.getQueueId()), String.valueOf(message.getQueueOffset()), message.getMsgId(),
            String.valueOf(message.getTags()), String.valueOf(message.getKeys()), String.valueOf(message.getSysFlag()),
            String.valueOf(message.getStoreSize()), body.substring(0, Math.min(60, body.length())))));
    }
}
