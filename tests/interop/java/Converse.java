import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Converse NAMESRV GROUP: transactions, requests and replies of the real client in one JVM.
 *
 * Reads a line per command, its arguments with tabs between them, and prints what comes of it, then DONE or
 * "FAILED exception":
 *
 * transaction TOPIC BODY STATE CHECKED: send BODY in a transaction that ends with STATE (COMMIT_MESSAGE,
 * ROLLBACK_MESSAGE or UNKNOW), and answer checks of it with CHECKED. Prints "SENT state msgId". A check is printed as
 * "CHECK transactionId topic times flag body".
 *
 * request TOPIC BODY MILLISECONDS: prints "REPLY body own-property".
 *
 * serve GROUP TOPIC: reply to each request with "re: " and its body.
 */
public class Converse implements TransactionListener {
    private final Map<String, LocalTransactionState> checked = new ConcurrentHashMap<>();
    private final String namesrv;
    private final TransactionMQProducer producer;

    public static void main(String[] args) throws Exception {
        Converse converse = new Converse(args[0], args[1]);
        System.out.println("READY");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                converse.run(line.split("\t"));
                System.out.println("DONE");
            } catch (Exception error) {
                System.out.println("FAILED " + String.valueOf(error).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private Converse(String namesrv, String group) throws Exception {
        this.namesrv = namesrv;
        producer = new TransactionMQProducer(group);
        producer.setMqClientApiTimeout(10000);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10000);
        producer.setTransactionListener(this);
        producer.start();
    }

    private void run(String[] words) throws Exception {
        byte[] body = words[2].getBytes(StandardCharsets.UTF_8);
        switch (words[0]) {
            case "transaction":
                Message half = new Message(words[1], "tag", "key-" + words[2], 7, body, true);
                half.putUserProperty("own", "x");
                checked.put(words[2], LocalTransactionState.valueOf(words[4]));
                TransactionSendResult sent =
                    producer.sendMessageInTransaction(half, LocalTransactionState.valueOf(words[3]));
                System.out.println("SENT\t" + sent.getLocalTransactionState() + "\t" + sent.getMsgId());
                break;
            case "request":
                Message reply = producer.request(new Message(words[1], body), Long.parseLong(words[3]));
                System.out.println("REPLY\t" + text(reply) + "\t" + reply.getUserProperty("own"));
                break;
            case "serve":
                serve(words[1], words[2]);
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private void serve(String group, String topic) throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer(group + "_replier");
        replier.setMqClientApiTimeout(10000);
        replier.setNamesrvAddr(namesrv);
        replier.setSendMsgTimeout(10000);
        replier.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setMqClientApiTimeout(10000);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt request : messages) {
                try {
                    byte[] body = ("re: " + text(request)).getBytes(StandardCharsets.UTF_8);
                    Message reply = MessageUtil.createReplyMessage(request, body);
                    System.out.println("REPLIED\t" + replier.send(reply, 10000).getMsgId());
                } catch (Exception error) {
                    System.out.println("NOT REPLIED " + String.valueOf(error).replace('\n', ' '));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message half, Object state) {
        return (LocalTransactionState) state;
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt half) {
        String times = half.getUserProperty("TRANSACTION_CHECK_TIMES");
        System.out.println("CHECK\t" + half.getTransactionId() + "\t" + half.getTopic() + "\t" + times + "\t"
            + half.getFlag() + "\t" + text(half));
        return checked.getOrDefault(text(half), LocalTransactionState.UNKNOW);
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
