package interop;

/** The case does not apply to what it was run against; the message says why. */
final class Skipped extends RuntimeException {
    Skipped(String why) {
        super(why);
    }
}
