import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * DumpBodies NAME…: for each class of such a simple name a line: the name, the JSON of a new object, the JSON of one whose
 * fields are all set, to numbers and texts that count up. Tabs stand between them.
 */
public class DumpBodies {
    private static int count;

    public static void main(String[] names) throws Exception {
        Set<String> wanted = new HashSet<>(Arrays.asList(names));
        TreeMap<String, Class<?>> found = new TreeMap<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (path.contains("rocketmq-") && path.endsWith(".jar")) {
                find(path, wanted, found);
            }
        }
        for (Class<?> type : found.values()) {
            if (!type.isEnum()) {
                count = 1;
                String fresh = RemotingSerializable.toJson(construct(type, 0), false);
                String filled = RemotingSerializable.toJson(fill(type, 0), false);
                System.out.println(type.getSimpleName() + "\t" + fresh + "\t" + filled);
            }
        }
    }

    private static void find(String path, Set<String> wanted, Map<String, Class<?>> found) throws Exception {
        try (JarFile jar = new JarFile(path)) {
            for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements();) {
                String name = entries.nextElement().getName();
                if (!name.matches("org/apache/rocketmq/(common|remoting)/.*\\.class")) {
                    continue;
                }
                String simple = name.replaceAll(".*[/$]|\\.class", "");
                if (wanted.contains(simple)) {
                    found.put(simple, Class.forName(name.replace(".class", "").replace('/', '.')));
                }
            }
        }
    }

    private static Object construct(Class<?> type, int depth) throws Exception {
        Constructor<?>[] all = Arrays.stream(type.getDeclaredConstructors())
            .filter(one -> !Arrays.asList(one.getParameterTypes()).contains(type)) // no copy constructors
            .sorted((left, right) -> left.getParameterCount() - right.getParameterCount())
            .toArray(Constructor<?>[]::new);
        Object[] arguments = new Object[all[0].getParameterCount()];
        for (int i = 0; i < arguments.length; i++) {
            arguments[i] = make(all[0].getGenericParameterTypes()[i], depth + 1);
        }
        all[0].setAccessible(true);
        return all[0].newInstance(arguments);
    }

    private static Object fill(Class<?> type, int depth) throws Exception {
        Object object = construct(type, depth);
        for (Class<?> part = type; part != Object.class; part = part.getSuperclass()) {
            for (Field field : part.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) || field.getType().getName().equals("java.util.Random")) {
                    continue;
                }
                Object value = make(field.getGenericType(), depth + 1);
                if (value != null) {
                    field.setAccessible(true);
                    field.set(object, value);
                }
            }
        }
        return object;
    }

    private static Object make(Type type, int depth) throws Exception {
        Class<?> raw = (Class<?>) (type instanceof ParameterizedType ? ((ParameterizedType) type).getRawType() : type);
        Type[] arguments = type instanceof ParameterizedType
            ? ((ParameterizedType) type).getActualTypeArguments() : new Type[] {String.class, String.class};
        if (depth > 6) {
            return null;
        } else if (raw == String.class || raw == Object.class) {
            return "s" + count++;
        } else if (raw == int.class || raw == Integer.class) {
            return count++;
        } else if (raw == long.class || raw == Long.class) {
            return (long) count++;
        } else if (raw == double.class) {
            return count++ + 0.5;
        } else if (raw == boolean.class || raw == Boolean.class) {
            return true;
        } else if (raw == AtomicLong.class) {
            return new AtomicLong(count++);
        } else if (raw == long[].class) {
            return new long[] {count++, count++};
        } else if (raw == BitSet.class) {
            return BitSet.valueOf(new long[] {34});
        } else if (raw == Properties.class) {
            Properties properties = new Properties();
            properties.setProperty("p" + count++, "v");
            return properties;
        } else if (raw.isEnum()) {
            return raw.getEnumConstants()[raw.getEnumConstants().length - 1];
        } else if (Map.class.isAssignableFrom(raw)) {
            return map(raw, arguments, depth);
        } else if (Collection.class.isAssignableFrom(raw)) {
            return collection(raw, arguments[0], depth);
        }
        return fill(raw, depth);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object map(Class<?> raw, Type[] arguments, int depth) throws Exception {
        Map map = ConcurrentMap.class.isAssignableFrom(raw) ? new ConcurrentHashMap()
            : raw == TreeMap.class ? new TreeMap() : new HashMap();
        Object key = make(arguments[0], depth + 1);
        map.put(key, make(arguments[1], depth + 1));
        return map;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object collection(Class<?> raw, Type argument, int depth) throws Exception {
        Collection items = List.class.isAssignableFrom(raw) ? new ArrayList()
            : raw == TreeSet.class ? new TreeSet() : new HashSet();
        items.add(make(argument, depth + 1));
        return items;
    }
}
