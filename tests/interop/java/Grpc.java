import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * The gRPC client at a proxy. Argument: the proxy's endpoint. The topics are Normal, Fifo, Delay and
 * Transaction; the groups are new. Prints a line for each message that arrives and for each check
 * of a transaction. A message whose body is "again" is consumed with success only the second time.
 * Ends with its standard input.
 */
public class Grpc {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration configuration;

    public static void main(String[] args) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(args[0])
            .enableSsl(false).setRequestTimeout(Duration.ofSeconds(20)).build();
        PushConsumer push = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("GrpcPush")
            .setSubscriptionExpressions(Collections.singletonMap("Normal", FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                print("PUSH", message);
                boolean fails = body(message).equals("again") && message.getDeliveryAttempt() == 1;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        for (String topic : new String[] {"Fifo", "Delay", "Transaction"}) {
            SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration).setConsumerGroup("GrpcSimple" + topic)
                .setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(
                    Collections.singletonMap(topic, FilterExpression.SUB_ALL))
                .build();
            Thread thread = new Thread(() -> receive(consumer));
            thread.setDaemon(true);
            thread.start();
        }
        produce();
        System.out.println("READY");
        while (System.in.read() >= 0) {
            // until whoever started this closes the pipe
        }
        System.exit(0);
    }

    static void receive(SimpleConsumer consumer) {
        while (true) {
            try {
                List<MessageView> messages = consumer.receive(16, Duration.ofSeconds(30));
                for (MessageView message : messages) {
                    print("SIMPLE", message);
                    consumer.ack(message);
                }
            } catch (Exception error) {
                System.out.println("FAILED " + error);
            }
        }
    }

    static void produce() throws Exception {
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics("Normal", "Fifo", "Delay").build();
        for (String body : new String[] {"plain", "again"}) {
            producer.send(message("Normal", body).setTag("a").setKeys("k").build());
        }
        for (String body : new String[] {"1", "2", "3"}) {
            producer.send(message("Fifo", body).setMessageGroup("g").build());
        }
        long due = System.currentTimeMillis() + 2000;
        producer.send(message("Delay", "late").setDeliveryTimestamp(due).build());
        Producer transactions = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration).setTopics("Transaction")
            .setTransactionChecker(message -> {
                print("CHECK", message);
                return TransactionResolution.COMMIT;
            }).build();
        for (String body : new String[] {"committed", "rolled-back", "open"}) {
            Transaction transaction = transactions.beginTransaction();
            transactions.send(message("Transaction", body).build(), transaction);
            if (body.equals("committed")) {
                transaction.commit();
            } else if (body.equals("rolled-back")) {
                transaction.rollback();
            }
        }
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic)
            .setBody(body.getBytes(StandardCharsets.UTF_8)).addProperty("own", "x");
    }

    static String body(MessageView message) {
        ByteBuffer buffer = message.getBody();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static void print(String how, MessageView message) {
        System.out.println(how + " " + message.getTopic() + " " + body(message) + " "
            + message.getDeliveryAttempt() + " " + new java.util.TreeMap<>(message.getProperties()));
    }
}
