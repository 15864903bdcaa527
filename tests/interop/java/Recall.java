import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Recall NAMESRV TOPIC (5.x only): send the messages "taken" and "left", due in eight seconds, and take the first back.
 * Prints SENT with the id and RECALLED with the id that the broker answers.
 */
public class Recall {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("recall_producer");
        producer.setMqClientApiTimeout(10000);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10000);
        producer.start();
        long due = System.currentTimeMillis() + 8000;
        SendResult taken = send(producer, args[1], "taken", due);
        send(producer, args[1], "left", due);
        System.out.println("RECALLED " + producer.recallMessage(args[1], taken.getRecallHandle()));
        System.exit(0);
    }

    private static SendResult send(DefaultMQProducer producer, String topic, String body, long due) throws Exception {
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        message.setDeliverTimeMs(due);
        SendResult sent = producer.send(message);
        System.out.println("SENT " + sent.getMsgId());
        return sent;
    }
}
