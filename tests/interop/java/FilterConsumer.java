import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * FilterConsumer NAMESRV GROUP TOPIC CLASS FILE: a push consumer of 4.2.0 that subscribes by a class, whose source is the file.
 * Prints READY, then a line "GOT body length" for each message. A line "tags EXPRESSION" makes it subscribe by tags instead and
 * is answered by DONE; at a line "commit" it tells the broker its offsets. Leaves the group when standard input closes.
 */
public class FilterConsumer {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName("java-" + System.nanoTime());
        consumer.setVipChannelEnabled(false); // the fast port of a test is any
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(200);
        consumer.setHeartbeatBrokerInterval(500);
        consumer.setPollNameServerInterval(500);
        consumer.subscribe(args[2], args[3], new String(Files.readAllBytes(Paths.get(args[4])), "UTF-8"));
        consumer.registerMessageListener(new MessageListenerConcurrently() {
            @Override
            public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
                for (MessageExt message : messages) {
                    byte[] body = message.getBody();
                    System.out.println("GOT " + new String(body, 0, Math.min(body.length, 20)) + " " + body.length);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
        });
        consumer.start();
        System.out.println("READY");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("commit")) {
                consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset(); // else after 10 s
            } else if (line.startsWith("tags ")) {
                consumer.unsubscribe(args[2]);
                consumer.subscribe(args[2], line.substring(5));
                consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately(); // else in 20 s
                System.out.println("DONE");
            }
        }
        consumer.shutdown();
        System.exit(0);
    }
}
