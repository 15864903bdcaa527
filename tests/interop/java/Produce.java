import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Produce NAMESRV TOPIC COUNT [MODE] [BODY_SIZE] [TAG]: sends COUNT messages, body "java-I" (padded with dots to
 * BODY_SIZE), keys "key-I", and prints a line "SENT I status msgId offsetMsgId broker queueId queueOffset" for each.
 * MODE is sync (default), batch or oneway.
 */
public class Produce {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        String mode = args.length > 3 ? args[3] : "sync";
        int size = args.length > 4 ? Integer.parseInt(args[4]) : 0;
        String tag = args.length > 5 ? args[5] : "tag-java";
        DefaultMQProducer producer = new DefaultMQProducer("java_producer");
        producer.setMqClientApiTimeout(10000);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10000);
        producer.start();
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            StringBuilder body = new StringBuilder("java-" + i);
            while (body.length() < size) {
                body.append('.');
            }
            messages.add(new Message(topic, tag, "key-" + i, body.toString().getBytes(StandardCharsets.UTF_8)));
        }
        if (mode.equals("batch")) {
            print(0, producer.send(messages));
        } else {
            for (int i = 0; i < count; i++) {
                if (mode.equals("oneway")) {
                    producer.sendOneway(messages.get(i));
                } else {
                    print(i, producer.send(messages.get(i)));
                }
            }
        }
        producer.shutdown();
        System.exit(0);
    }

    private static void print(int i, SendResult result) {
        System.out.println("SENT " + i + " " + result.getSendStatus() + " " + result.getMsgId() + " "
            + result.getOffsetMsgId() + " " + result.getMessageQueue().getBrokerName() + " "
            + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset());
    }
}
