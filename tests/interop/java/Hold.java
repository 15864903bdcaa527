import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Hold NAMESRV GROUP TOPIC: a producer that has sent a message to the topic TOPICHeld and stays connected, with its heartbeat
 * at the broker. Prints READY and its client id. Ends when standard input closes.
 */
public class Hold {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[1]);
        producer.setMqClientApiTimeout(10000);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName("java-" + System.nanoTime());
        producer.setSendMsgTimeout(10000);
        producer.start();
        producer.fetchPublishMessageQueues(args[2]);
        producer.send(new Message(args[2] + "Held", "body".getBytes()));
        producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
        System.out.println("READY " + producer.buildMQClientId());
        while (System.in.read() >= 0) {
        }
        producer.shutdown();
        System.exit(0);
    }
}
