import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.util.Properties;
import java.util.TreeSet;

/** Reads a text in UTF-16 as hexadecimal digits from each line, and prints its properties the same way. */
public class LoadProperties {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            System.out.println(line + "|" + loaded(text(line)));
        }
    }

    private static String loaded(String text) throws Exception {
        Properties properties = new Properties();
        try {
            properties.load(new StringReader(text));
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        StringBuilder shown = new StringBuilder();
        for (String key : new TreeSet<>(properties.stringPropertyNames())) {
            shown.append(digits(key)).append('=').append(digits(properties.getProperty(key))).append(' ');
        }
        return shown.toString().trim();
    }

    private static String text(String digits) {
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < digits.length(); at += 4) {
            text.append((char) Integer.parseInt(digits.substring(at, at + 4), 16));
        }
        return text.toString();
    }

    private static String digits(String text) {
        StringBuilder digits = new StringBuilder();
        for (char unit : text.toCharArray()) {
            digits.append(String.format("%04x", (int) unit));
        }
        return digits.toString();
    }
}
