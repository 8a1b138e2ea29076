package io.headrace.sink;

/** A record that no repeat can make acceptable. The message says what was needed and what came. */
final class BadRecord extends Exception {
    private static final long serialVersionUID = 1L;

    BadRecord(String message) {
        super(message);
    }
}
