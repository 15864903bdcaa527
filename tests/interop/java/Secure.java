import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Secure NAMESRV TLS ACCESS_KEY SECRET_KEY TOPIC GROUP: send a message, look for it by its key, and consume it. TLS is
 * true or false; an ACCESS_KEY of "-" signs nothing. Prints SENT, FOUND and GOT with the body, or REFUSED with code and
 * text where the broker refuses to take the message.
 */
public class Secure {
    public static void main(String[] args) throws Exception {
        System.setProperty("tls.enable", args[1]);
        RPCHook hook = args[2].equals("-") ? null : new AclClientRPCHook(new SessionCredentials(args[2], args[3]));
        DefaultMQProducer producer = new DefaultMQProducer("secure_producer", hook);
        producer.setMqClientApiTimeout(10000);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        awaitRoute(producer, args[4]);
        SendResult result;
        try {
            byte[] body = "secret".getBytes(StandardCharsets.UTF_8);
            result = producer.send(new Message(args[4], "tag", "secure-key", body));
            System.out.println("SENT " + result.getMsgId());
        } catch (MQClientException error) {
            // The client would try another broker after this code; what the last one said is the cause.
            if (error.getCause() == null) {
                throw error;
            }
            String text = error.getCause().getMessage().replace('\n', ' ');
            System.out.println("REFUSED " + error.getResponseCode() + " " + text);
            System.exit(0);
            return;
        }
        System.out.println("FOUND " + text(producer.viewMessage(args[4], result.getMsgId())));
        CountDownLatch got = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[5], hook,
            new org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely());
        consumer.setMqClientApiTimeout(10000);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[4], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> System.out.println("GOT " + text(message)));
            got.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println(got.await(60, TimeUnit.SECONDS) ? "DONE" : "NOTHING CAME");
        System.exit(0);
    }

    /** The client gives up its name server after three seconds, in which a busy machine loads no classes for it. */
    private static void awaitRoute(DefaultMQProducer producer, String topic) throws Exception {
        long end = System.currentTimeMillis() + 60000;
        while (true) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (MQClientException error) {
                if (System.currentTimeMillis() > end) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
