import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;

/** Lists topics with each of the properties that standard input names, and prints what kept it out. */
public class Visits {
    public static void main(String[] given) throws Exception {
        var json = new ObjectMapper();
        var ways = json.readValue(System.in, new TypeReference<LinkedHashMap<String, Map<String, Object>>>() {});
        var threads = Executors.newFixedThreadPool(ways.size());
        var visits = new LinkedHashMap<String, Future<String>>();
        ways.forEach((name, properties) -> visits.put(name, threads.submit(() -> visit(properties))));
        var outcomes = new LinkedHashMap<String, String>();
        for (var visit : visits.entrySet()) {
            outcomes.put(visit.getKey(), visit.getValue().get());
        }
        json.writeValue(System.out, outcomes);
        System.exit(0);
    }

    private static String visit(Map<String, Object> properties) throws InterruptedException {
        try (var admin = Admin.create(properties)) {
            admin.listTopics().names().get();
            return "";
        } catch (ExecutionException refused) {
            return refused.getCause().toString();
        } catch (RuntimeException unusable) {
            return unusable + ": " + unusable.getCause();
        }
    }
}
