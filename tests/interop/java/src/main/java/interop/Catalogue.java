package interop;

import java.util.LinkedHashMap;
import java.util.Map;

/** Every case, by its name, in the order in which they run: slow ones lie among quick ones. */
final class Catalogue {
    private static final int DEADLINE_SECONDS = 100;

    private final Map<String, Case> cases = new LinkedHashMap<>();

    private Catalogue() {}

    static Map<String, Case> cases() {
        Catalogue all = new Catalogue();
        SendCases.addTo(all);
        TransactionCases.addTo(all);
        ConsumeCases.addTo(all);
        PullCases.addTo(all);
        RetryCases.addTo(all);
        GroupCases.addTo(all);
        QueryCases.addTo(all);
        OffsetCases.addTo(all);
        AdminCases.addTo(all);
        MiscCases.addTo(all);
        VersionCases.addTo(all);
        return all.cases;
    }

    void add(String name, Case.Body body) {
        add(name, DEADLINE_SECONDS, body);
    }

    void add(String name, int deadlineSeconds, Case.Body body) {
        if (cases.put(name, new Case(name, deadlineSeconds, body)) != null) {
            throw new IllegalStateException("two cases are called " + name);
        }
    }
}
