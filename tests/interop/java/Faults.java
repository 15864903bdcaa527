import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Faults NAMESRV TOPIC GROUP PAUSE: a producer that sends a message each PAUSE milliseconds, and two members of a group
 * that consume them. Prints, with tabs between, times in ms since 1970: "TRY time body", "SENT time body status broker
 * queueId offset", "FAILED time body error", "GOT member time broker queueId offset body" and, when a member
 * rebalances, "SHARE member time broker:queueId broker:queueId …". Reads "stop": it sends no more.
 */
public class Faults {
    private static volatile boolean sends = true;

    public static void main(String[] args) throws Exception {
        // A connection that leads nowhere is never given up otherwise; and a rebalance comes each 20 s.
        System.setProperty("com.rocketmq.remoting.client.closeSocketIfTimeout", "true");
        System.setProperty("rocketmq.client.rebalance.waitInterval", "2000");
        DefaultMQProducer producer = new DefaultMQProducer(args[2] + "-producer");
        producer.setMqClientApiTimeout(10000);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName("producer");
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setSendMsgTimeout(3000);
        producer.start();
        consume(args[0], args[1], args[2], "java-1");
        consume(args[0], args[1], args[2], "java-2");
        Thread sender = new Thread(() -> send(producer, args[1], Long.parseLong(args[3])));
        sender.setDaemon(true);
        sender.start();
        System.out.println("READY");
        int read;
        while ((read = System.in.read()) >= 0) {
            sends &= read != 's';
        }
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, long pause) {
        for (int number = 0; ; number++) {
            try {
                Thread.sleep(pause);
                if (!sends) {
                    continue;
                }
            } catch (InterruptedException error) {
                return;
            }
            long now = System.currentTimeMillis();
            String body = String.format(Locale.ROOT, "java-%d-%.3f", number, now / 1000.0);
            print("TRY", now, body);
            try {
                SendResult result = producer.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8)));
                MessageQueue queue = result.getMessageQueue();
                print("SENT", System.currentTimeMillis(), body, result.getSendStatus(), queue.getBrokerName(),
                    queue.getQueueId(), result.getQueueOffset());
            } catch (Exception error) {
                print("FAILED", System.currentTimeMillis(), body, String.valueOf(error).replaceAll("\\s+", " "));
            }
        }
    }

    private static void consume(String namesrv, String topic, String group, String name) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setMqClientApiTimeout(10000);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.subscribe(topic, "*");
        consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragely() {
            @Override
            public List<MessageQueue> allocate(String of, String member, List<MessageQueue> all, List<String> members) {
                List<MessageQueue> mine = super.allocate(of, member, all, members);
                if (all.stream().anyMatch(queue -> queue.getTopic().equals(topic))) {
                    print("SHARE", name, System.currentTimeMillis(), mine.stream()
                        .map(queue -> queue.getBrokerName() + ":" + queue.getQueueId()).collect(Collectors.joining(" ")));
                }
                return mine;
            }
        });
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                print("GOT", name, System.currentTimeMillis(), message.getBrokerName(), message.getQueueId(),
                    message.getQueueOffset(), new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static synchronized void print(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.length() == 0 ? "" : "\t").append(word);
        }
        System.out.println(line);
    }
}
