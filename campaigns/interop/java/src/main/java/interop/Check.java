package interop;

import java.util.Objects;

/** What a case claims. */
final class Check {
    private Check() {}

    static void that(boolean holds, String claim) {
        if (!holds) {
            throw new AssertionError(claim);
        }
    }

    static void equal(String what, Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(what + ": expected " + expected + ", found " + found);
        }
    }

    /** A call that must fail with `part` in its text. */
    static String fails(String part, Attempt attempt) throws Exception {
        Object result;
        try {
            result = attempt.run();
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            String told = String.valueOf(e);
            if (!told.contains(part)) {
                throw new AssertionError("expected an error with \"" + part + "\", got " + told, e);
            }
            return told.lines().findFirst().orElse("");
        }
        throw new AssertionError("expected an error with \"" + part + "\", got " + result);
    }

    /** What is tried. */
    @FunctionalInterface
    interface Attempt {
        Object run() throws Exception;
    }
}
