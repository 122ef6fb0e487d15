package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Runs cases and tells how each ended, one JSON object per line of standard output that begins with
 * "@@".
 *
 * <p>Arguments: name servers; how many cases run at once; "faults" or "steady"; the names of cases,
 * none for all. With "faults" they run in batches, and the cases of a batch meet in their middle: the line
 * {"event":"midpoint"} asks whoever started this program to break something, and any line on
 * standard input lets them go on.
 */
public final class Main {
    private static final long MIDPOINT_WAIT_MS_MAX = 100_000;

    private final Rig.Place place;
    private final PrintStream out;
    private final BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private Main(Rig.Place place, PrintStream out) {
        this.place = place;
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        if (arguments[0].equals("list")) {
            Catalogue.cases().keySet().forEach(out::println);
            return;
        }
        if (arguments[0].equals("campaign")) {
            System.exit(Campaigns.run(arguments, out) ? 0 : 1);
        }
        if (arguments[0].equals("load")) {
            System.exit(Load.run(arguments, out) ? 0 : 1);
        }
        boolean faults = arguments[2].equals("faults");
        String run = Long.toString(System.currentTimeMillis() % 100_000_000L, 36);
        Main main = new Main(new Rig.Place(arguments[0], run, faults), out);
        Set<String> wanted = new TreeSet<>(List.of(arguments).subList(3, arguments.length));
        List<Case> cases = new ArrayList<>();
        for (Map.Entry<String, Case> each : Catalogue.cases().entrySet()) {
            if (wanted.isEmpty() || wanted.contains(each.getKey())) {
                cases.add(each.getValue());
            }
        }
        int atOnce = Integer.parseInt(arguments[1]);
        if (faults) {
            for (int from = 0; from < cases.size(); from += atOnce) {
                main.runBatch(cases.subList(from, Math.min(cases.size(), from + atOnce)));
            }
        } else {
            main.runSteadily(cases, atOnce);
        }
        System.exit(0); // clients leave threads behind that would keep the machine up
    }

    /** One begins where another has ended. */
    private void runSteadily(List<Case> cases, int atOnce) throws InterruptedException {
        ExecutorService places = Executors.newFixedThreadPool(atOnce);
        for (Case each : cases) {
            places.submit(() -> runOne(each, () -> {}, () -> {}));
        }
        places.shutdown();
        places.awaitTermination(Long.MAX_VALUE, TimeUnit.NANOSECONDS);
    }

    private void runBatch(List<Case> cases) throws InterruptedException {
        Phaser middle =
                new Phaser(cases.size()) {
                    @Override
                    protected boolean onAdvance(int phase, int parties) {
                        if (parties > 0) {
                            askForMidpoint();
                        }
                        return parties == 0;
                    }
                };
        ExecutorService places = Executors.newFixedThreadPool(cases.size());
        for (Case each : cases) {
            AtomicBoolean left = new AtomicBoolean();
            Runnable leave =
                    () -> {
                        if (!left.getAndSet(true)) {
                            middle.arriveAndDeregister();
                        }
                    };
            places.submit(() -> runOne(each, () -> meet(middle), leave));
        }
        places.shutdown();
        places.awaitTermination(Long.MAX_VALUE, TimeUnit.NANOSECONDS);
    }

    /** To its end, or its deadline; tells how it ended. `leave` frees those that wait for it. */
    private void runOne(Case each, Rig.Middle middle, Runnable leave) {
        long began = System.nanoTime();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        Future<String> running = thread.submit(() -> told(each, middle));
        int seconds = place.deadlineSeconds(each);
        String told;
        try {
            told = running.get(seconds, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            told = "FAIL no end within " + seconds + " s";
        } catch (ExecutionException e) {
            told = "FAIL " + e.getCause();
        } catch (InterruptedException e) {
            told = "FAIL interrupted";
        }
        leave.run();
        thread.shutdownNow();
        report(each, told, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
    }

    private String told(Case each, Rig.Middle middle) {
        String detail;
        try (Rig rig = new Rig(place, each.name(), middle, this::ask)) {
            detail = "PASS " + each.body().run(rig);
        } catch (Skipped e) {
            detail = "SKIP " + e.getMessage();
        } catch (InterruptedException e) {
            return "FAIL interrupted";
        } catch (AssertionError e) {
            detail = "FAIL " + e.getMessage();
        } catch (Exception e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            detail = "FAIL " + e + " " + trace.toString().lines().skip(1).limit(3).toList();
        }
        return detail;
    }

    private void meet(Phaser middle) throws InterruptedException {
        int phase = middle.arrive();
        try {
            middle.awaitAdvanceInterruptibly(phase, MIDPOINT_WAIT_MS_MAX, TimeUnit.MILLISECONDS);
        } catch (TimeoutException e) {
            throw new AssertionError("the other cases did not come to their middle", e);
        }
    }

    private void askForMidpoint() {
        ask("{\"event\":\"midpoint\"}", "a midpoint");
    }

    private String ask(String what) {
        return ask("{\"event\":\"ask\",\"what\":" + quoted(what) + "}", what);
    }

    private String ask(String line, String what) {
        synchronized (out) {
            out.println("@@" + line);
        }
        try {
            String answer = in.readLine();
            if (answer == null) {
                throw new IllegalStateException("standard input ended at " + what);
            }
            return answer;
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    /** What is told begins with an outcome of four letters. */
    private void report(Case each, String told, long tookMs) {
        String outcome = told.substring(0, 4).toLowerCase();
        String detail = told.length() > 5 ? told.substring(5) : "";
        synchronized (out) {
            out.println(
                    "@@{\"case\":" + quoted(each.name())
                            + ",\"outcome\":" + quoted(outcome)
                            + ",\"took_ms\":" + tookMs
                            + ",\"detail\":" + quoted(detail) + "}");
        }
    }

    /** A JSON string. */
    static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                json.append(String.format("\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        return json.append('"').toString();
    }
}
