import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.offset.GetConsumerStatusCommand;
import org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeOldCommand;

/**
 * The real mqadmin, many commands in one JVM: a start takes seconds, a command far less.
 *
 * Reads a line per command, its arguments with tabs between them. Answers RESULT and the text that
 * the command printed on its standard output, in base64.
 */
public class Mqadmin {
    private static volatile boolean running;

    public static void main(String[] args) throws Exception {
        Field commands = commandsField();
        commands.setAccessible(true);
        PrintStream console = System.out;
        Thread waker = new Thread(() -> wake(Thread.currentThread().getThreadGroup()));
        waker.setDaemon(true);
        waker.start();
        console.println("READY");
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.clearProperty("rocketmq.namesrv.addr"); // of an earlier command
            // Some commands keep a client that they have shut down: each run gets new ones.
            ((List<?>) commands.get(null)).clear();
            // They are there, but mqadmin does not register them.
            MQAdminStartup.initCommand(new ResetOffsetByTimeOldCommand());
            MQAdminStartup.initCommand(new GetConsumerStatusCommand());
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            running = true;
            try {
                MQAdminStartup.main0(line.split("\t"), null);
            } finally {
                running = false;
                System.setOut(console);
            }
            console.println("RESULT " + Base64.getEncoder().encodeToString(printed.toByteArray()));
        }
    }

    /** A client of 5.5 that shuts down joins a thread that looks up from its queue each three seconds. */
    private static void wake(ThreadGroup group) {
        while (true) {
            try {
                Thread.sleep(20);
            } catch (InterruptedException ended) {
                return;
            }
            Thread[] threads = new Thread[group.activeCount() + 64];
            int count = running ? group.enumerate(threads) : 0;
            for (int i = 0; i < count; i++) {
                if (isStopped(threads[i])) {
                    threads[i].interrupt();
                }
            }
        }
    }

    /** Whether a thread is the NettyEventExecutor of a client that is being shut down. */
    private static boolean isStopped(Thread thread) {
        try {
            Field task = Thread.class.getDeclaredField("target");
            task.setAccessible(true);
            Object service = task.get(thread);
            return service instanceof ServiceThread
                && ((ServiceThread) service).getServiceName().equals("NettyEventExecutor")
                && ((ServiceThread) service).isStopped();
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Field commandsField() throws NoSuchFieldException {
        try {
            return MQAdminStartup.class.getDeclaredField("subCommandList");
        } catch (NoSuchFieldException ofRelease5) {
            return MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        }
    }
}
