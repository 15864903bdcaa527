import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer whose queues the broker shares out, in the mode that the broker says. Arguments:
 * name server, group, topic, expression. Prints GOT, the body, how often it was consumed before and
 * whether it was popped. Messages whose body begins with "later" are consumed with success only the
 * second time. Ends with its standard input.
 */
public class Pop {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setMqClientApiTimeout(10000);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(10000);
        consumer.subscribe(args[2], args[3]);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            ConsumeConcurrentlyStatus status = ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                boolean popped = message.getProperty("POP_CK") != null;
                System.out.println(
                    "GOT " + body + " " + message.getReconsumeTimes() + " " + popped
                        + " " + message.getTopic());
                if (body.startsWith("later") && message.getReconsumeTimes() == 0) {
                    status = ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return status;
        });
        consumer.start();
        System.out.println("READY");
        while (System.in.read() >= 0) {
            // until whoever started this closes the pipe
        }
        consumer.shutdown();
    }
}
