package interop;

import java.util.LinkedHashMap;
import java.util.Map;

/** Every case, by its name, in the order in which they run: slow ones lie among quick ones. */
final class Catalogue {
    private static final int DEADLINE_SECONDS = 100;

    private final Map<String, Case> cases = new LinkedHashMap<>();

    private Catalogue() {}

    /** With property "interop.cases", those of the class that it names alone. */
    static Map<String, Case> cases() {
        Catalogue all = new Catalogue();
        String only = System.getProperty("interop.cases");
        if (only != null) {
            all.addFrom(only);
            return all.cases;
        }
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

    private void addFrom(String name) {
        try {
            Class.forName(name).getDeclaredMethod("addTo", Catalogue.class).invoke(null, this);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(name + " has no cases", e);
        }
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
