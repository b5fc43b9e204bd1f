import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Two members of a share group and what they get; each line of output is one finding. */
public final class SharedWork {
    private static final Duration SHORT = Duration.ofMillis(100);
    private static final int RECORDS = 200;
    private final String servers;
    private final String topic;
    private final String group;
    private final KafkaProducer<String, String> producer;

    private SharedWork(String servers, String topic, String group) {
        this.servers = servers;
        this.topic = topic;
        this.group = group;
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", servers, "linger.ms", "0", "batch.size", "200"),
            new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] args) throws Exception {
        new SharedWork(args[0], args[1], args[2]).run();
    }

    private KafkaShareConsumer<String, String> member(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        var member = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        member.subscribe(List.of(topic));
        return member;
    }

    private void send(String value) throws Exception {
        producer.send(new ProducerRecord<>(topic, value)).get();
    }

    private void run() throws Exception {
        beginWithTheOldest();
        var one = member(Map.of("max.poll.records", 10));
        // Alone: a member that waits for records may be given some that it has not been asked for yet.
        releaseAndReject(one);
        for (int number = 0; number < RECORDS; number++) send("r" + number);
        var two = member(Map.of("max.poll.records", 10, "share.acquire.mode", "record_limit"));
        shareRecords(one, two);
        hang(List.of(one, two));
        one.close();
        two.close();
        producer.close();
        System.out.println("done");
    }

    private void beginWithTheOldest() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            var earliest = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            Map<ConfigResource, Collection<AlterConfigOp>> changes = Map.of(resource, List.of(earliest));
            admin.incrementalAlterConfigs(changes).all().get();
        }
    }

    private void shareRecords(KafkaShareConsumer<String, String> one, KafkaShareConsumer<String, String> two) {
        var seen = new TreeSet<String>();
        int[] counts = {0, 0};
        while (counts[0] + counts[1] < RECORDS || counts[0] == 0 || counts[1] == 0) {
            var members = List.of(one, two);
            for (int index = 0; index < 2; index++) {
                for (ConsumerRecord<String, String> record : members.get(index).poll(SHORT)) {
                    seen.add(record.value());
                    counts[index]++;
                    members.get(index).acknowledge(record, AcknowledgeType.ACCEPT);
                }
                members.get(index).commitSync().values().forEach(error -> error.ifPresent(problem -> {
                    throw problem;
                }));
            }
            if (counts[0] + counts[1] >= RECORDS && (counts[0] == 0 || counts[1] == 0)) break;
        }
        System.out.println("each once: " + seen.size() + " of " + (counts[0] + counts[1]));
    }

    private ConsumerRecord<String, String> next(KafkaShareConsumer<String, String> member) {
        while (true) {
            for (ConsumerRecord<String, String> record : member.poll(SHORT)) return record;
        }
    }

    private void releaseAndReject(KafkaShareConsumer<String, String> member) throws Exception {
        send("hard");
        var first = next(member);
        member.acknowledge(first, AcknowledgeType.RELEASE);
        var again = next(member);
        System.out.println("released: " + again.value() + " delivered " + again.deliveryCount().get());
        member.acknowledge(again, AcknowledgeType.REJECT);
        member.commitSync();
        send("easy");
        var other = next(member);
        System.out.println("rejected, then: " + other.value() + " delivered " + other.deliveryCount().get());
        member.acknowledge(other, AcknowledgeType.ACCEPT);
        member.commitSync();
    }

    private void hang(List<KafkaShareConsumer<String, String>> members) throws Exception {
        send("stuck");
        int holder = 1;
        ConsumerRecord<String, String> held = null;
        while (held == null) {
            holder = 1 - holder;
            for (ConsumerRecord<String, String> record : members.get(holder).poll(SHORT)) held = record;
        }
        var one = members.get(holder);
        var two = members.get(1 - holder);
        long began = System.nanoTime();
        var taken = next(two);
        boolean waited = System.nanoTime() - began > 500_000_000L;
        System.out.println("hangs: " + held.value() + ", then " + taken.value() + " delivered "
            + taken.deliveryCount().get() + (waited ? " after its lock" : " too soon"));
        one.acknowledge(held, AcknowledgeType.ACCEPT);
        one.commitSync().values().forEach(error ->
            System.out.println("late: " + error.map(problem -> problem.getClass().getSimpleName()).orElse("none")));
        two.acknowledge(taken, AcknowledgeType.ACCEPT);
        two.commitSync();
    }
}
