import java.io.File;
import java.lang.annotation.Annotation;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/**
 * For each header on the class path a line: its name, and its fields with those of its superclasses as "name:type", with
 * a star behind the name when it is CFNotNull, and "=" behind the type when a new object has a value in it.
 */
public class DumpHeaders {
    public static void main(String[] args) throws Exception {
        Class<?> header = Class.forName("org.apache.rocketmq.remoting.CommandCustomHeader");
        TreeMap<String, String> lines = new TreeMap<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!path.contains("rocketmq-") || !path.endsWith(".jar")) {
                continue;
            }
            try (JarFile jar = new JarFile(path)) {
                for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements();) {
                    String name = entries.nextElement().getName();
                    if (!name.contains("/protocol/header/") || !name.endsWith(".class")) {
                        continue;
                    }
                    Class<?> type = Class.forName(name.substring(0, name.length() - 6).replace('/', '.'));
                    if (header.isAssignableFrom(type)) {
                        lines.put(type.getSimpleName(), String.join(" ", fields(type)));
                    }
                }
            }
        }
        lines.forEach((name, fields) -> System.out.println(name + "\t" + fields));
    }

    private static List<String> fields(Class<?> type) throws Exception {
        List<String> fields = new ArrayList<>();
        Object object = Modifier.isAbstract(type.getModifiers()) ? null : type.getDeclaredConstructor().newInstance();
        for (Class<?> part = type; part != Object.class; part = part.getSuperclass()) {
            for (Field field : part.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers())) {
                    continue;
                }
                field.setAccessible(true);
                boolean required = false;
                for (Annotation annotation : field.getAnnotations()) {
                    required |= annotation.annotationType().getSimpleName().equals("CFNotNull");
                }
                boolean filled = object != null && field.get(object) != null;
                fields.add(field.getName() + (required ? "*" : "") + ":" + field.getType().getSimpleName()
                    + (filled ? "=" : ""));
            }
        }
        return fields;
    }
}
