import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consume NAMESRV GROUP TOPIC [EXPRESSION] [MODE]: a push consumer that starts at the first offset and prints a line
 * "GOT broker queueId queueOffset msgId reconsumeTimes body" for each message, the body cut at 60 characters.
 * MODE is concurrently (default), orderly, or fail-once (a message is refused when it comes for the first time).
 * Ends when standard input closes.
 */
public class Consume {
    public static void main(String[] args) throws Exception {
        String mode = args.length > 4 ? args[4] : "concurrently";
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setMqClientApiTimeout(10000);
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName("java-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], args.length > 3 ? args[3] : "*");
        if (mode.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Consume::print);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Consume::print);
                boolean refuse = mode.equals("fail-once") && messages.get(0).getReconsumeTimes() == 0;
                if (refuse) {
                    context.setDelayLevelWhenNextConsume(1);
                }
                return refuse ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        System.out.println("READY " + consumer.buildMQClientId());
        while (System.in.read() >= 0) {
        }
        consumer.shutdown();
        System.out.println("CLOSED");
        System.exit(0);
    }

    private static synchronized void print(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        System.out.println("GOT " + message.getBrokerName() + " " + message.getQueueId() + " " + message.getQueueOffset()
            + " " + message.getMsgId() + " " + message.getReconsumeTimes() + " "
            + body.substring(0, Math.min(60, body.length())));
    }
}
