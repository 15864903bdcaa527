import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Evaluates SQL92 filters with the broker's own classes. Each line of the file named by the first
 * argument is an expression and a message's properties, or "bloom", error rate, number and text;
 * the words are in hex and apart by a space. Prints a line for each: true, false, null, failed (at
 * the message), refused (the expression), or the positions of the bits.
 */
public class Filters {
    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get(args[0]))) {
            String[] words = line.split(" ", -1);
            out.append(words[0].equals("bloom") ? bloom(words) : evaluate(words)).append('\n');
        }
        System.out.print(out);
    }

    private static String bloom(String[] words) {
        BloomFilter filter =
            BloomFilter.createByFn(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
        return filter.getM() + " " + Arrays.toString(filter.calcBitPositions(text(words[3])));
    }

    private static String evaluate(String[] words) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(words[0]));
        } catch (Throwable e) {
            return "refused";
        }
        Map<String, String> properties = MessageDecoder.string2messageProperties(text(words[1]));
        try {
            return String.valueOf(expression.evaluate(new MessageEvaluationContext(properties)));
        } catch (Throwable e) {
            return "failed";
        }
    }

    private static String text(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
