import java.io.IOException;
import java.net.URL;

/** Get URL: prints the page, or ends with the library's own words. */
public class Get {
    public static void main(String[] words) throws Exception {
        try (var in = new URL(words[0]).openStream()) {
            in.transferTo(System.out);
        } catch (IOException e) {
            System.err.println(e);
            System.exit(1);
        }
    }
}
