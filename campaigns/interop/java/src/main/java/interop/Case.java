package interop;

/** One thing that a client can do: what it returns is told, what it throws is a failure. */
record Case(String name, int deadlineSeconds, Body body) {
    /** What a case does. */
    @FunctionalInterface
    interface Body {
        Object run(Rig rig) throws Exception;
    }
}
