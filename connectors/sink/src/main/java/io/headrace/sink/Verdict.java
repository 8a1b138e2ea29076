package io.headrace.sink;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What became of one record of a bulk request.
 *
 * <pre>
 * status                     upsert            delete
 * 2xx                        DONE              DONE
 * 404, result "not_found"    -                 DONE    nothing was there; the index keeps the version all the same
 * 409                        STALE             STALE   the index holds this version already, or a newer one
 * 400                        BAD               BAD     unless the index itself is the reason
 * all others                 AGAIN             AGAIN   429, 5xx, a block, a missing index: the record is not at fault
 * </pre>
 *
 * Only what lies in the record is BAD. A record that was given up because of the index's state would be lost to it.
 */
record Verdict(Kind kind, String reason) {
    enum Kind { DONE, STALE, BAD, AGAIN }

    // Answered with 400, yet said of the index and not of the document.
    private static final Set<String> OF_THE_INDEX = Set.of("index_closed_exception", "invalid_index_name_exception",
            "invalid_alias_name_exception");

    /**
     * The verdicts on a bulk's actions, in their order. BadRecord when the body is not the answer to such a bulk: then
     * nothing is known of any of them.
     */
    static List<Verdict> read(byte[] body, List<Action> actions) throws BadRecord {
        Object answer = Json.parse(new String(body, StandardCharsets.UTF_8));
        if (!(answer instanceof Map<?, ?> map) || !(map.get("items") instanceof List<?> items)
                || items.size() != actions.size()) {
            throw new BadRecord("needed " + actions.size() + " items in the answer to a bulk request, got another one");
        }
        List<Verdict> verdicts = new ArrayList<>(items.size());
        for (int i = 0; i < items.size(); i++) {
            boolean delete = actions.get(i).delete();
            if (!(items.get(i) instanceof Map<?, ?> item)
                    || !(item.get(delete ? "delete" : "index") instanceof Map<?, ?> outcome)
                    || !(outcome.get("status") instanceof Long status)) {
                throw new BadRecord("needed a status for action " + i + " in the answer to a bulk request, got none");
            }
            verdicts.add(of(status.intValue(), delete, outcome));
        }
        return verdicts;
    }

    private static Verdict of(int status, boolean delete, Map<?, ?> outcome) {
        if (status >= 200 && status < 300) {
            return new Verdict(Kind.DONE, "");
        }
        if (status == 404 && delete && "not_found".equals(outcome.get("result"))) {
            return new Verdict(Kind.DONE, "");
        }
        if (status == 409) {
            return new Verdict(Kind.STALE, "");
        }
        Map<?, ?> error = outcome.get("error") instanceof Map<?, ?> map ? map : Map.of();
        String reason = "the index answered " + status + " " + text(error.get("type")) + ": "
                + text(error.get("reason"));
        if (error.get("caused_by") instanceof Map<?, ?> cause && cause.get("reason") != null) {
            reason += " (" + cause.get("reason") + ")";
        }
        boolean bad = status == 400 && error.get("type") instanceof String type && !OF_THE_INDEX.contains(type);
        return new Verdict(bad ? Kind.BAD : Kind.AGAIN, reason);
    }

    private static String text(Object value) {
        return value == null ? "without a word" : value.toString();
    }
}
