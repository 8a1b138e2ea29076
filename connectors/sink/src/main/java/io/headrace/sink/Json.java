package io.headrace.sink;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON by RFC 8259, strictly: what a sink needs of it, so that the plugin brings no library of its own.
 *
 * <p>An object is a Map in the order of its text, an array a List, a whole number a Long where it fits and else a
 * BigDecimal, other numbers BigDecimal. Nesting is bounded, so that no text can exhaust the stack.
 */
final class Json {
    static final int DEPTH_MAX = 100;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** The text's one value. BadRecord when it is anything else, with the place where it stops being JSON. */
    static Object parse(String text) throws BadRecord {
        Json json = new Json(text);
        Object value = json.value(0);
        json.blanks();
        if (json.at != text.length()) {
            throw json.wrong("the end");
        }
        return value;
    }

    /** Appends a value that consists of what `parse` gives, and of Connect's plain numbers. BadRecord for others. */
    static void write(Object value, StringBuilder out) throws BadRecord {
        write(value, out, 0);
    }

    /** Appends a string in quotes. */
    static void writeString(String value, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private static void write(Object value, StringBuilder out, int depth) throws BadRecord {
        if (depth > DEPTH_MAX) {
            throw new BadRecord("needed JSON of at most " + DEPTH_MAX + " levels, got more");
        }
        if (value == null || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof String string) {
            writeString(string, out);
        } else if (value instanceof Map<?, ?> map) {
            writeObject(map, out, depth);
        } else if (value instanceof List<?> list) {
            String before = "[";
            for (Object element : list) {
                out.append(before);
                write(element, out, depth + 1);
                before = ",";
            }
            out.append(list.isEmpty() ? "[]" : "]");
        } else {
            writeNumber(value, out);
        }
    }

    private static void writeObject(Map<?, ?> map, StringBuilder out, int depth) throws BadRecord {
        String before = "{";
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            if (!(entry.getKey() instanceof String name)) {
                throw new BadRecord("needed strings as names in an object, got " + kind(entry.getKey()));
            }
            out.append(before);
            writeString(name, out);
            out.append(':');
            write(entry.getValue(), out, depth + 1);
            before = ",";
        }
        out.append(map.isEmpty() ? "{}" : "}");
    }

    private static void writeNumber(Object value, StringBuilder out) throws BadRecord {
        boolean whole = value instanceof Long || value instanceof Integer || value instanceof Short
                || value instanceof Byte || value instanceof BigInteger || value instanceof BigDecimal;
        boolean finite = value instanceof Double d && Double.isFinite(d)
                || value instanceof Float f && Float.isFinite(f);
        if (!whole && !finite) {
            throw new BadRecord("needed a value that JSON has, got " + kind(value) + " " + value);
        }
        out.append(value);
    }

    /** What a person calls a value's type. */
    static String kind(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof byte[]) {
            return "bytes";
        }
        return value.getClass().getSimpleName();
    }

    private Object value(int depth) throws BadRecord {
        if (depth > DEPTH_MAX) {
            throw wrong("at most " + DEPTH_MAX + " levels");
        }
        blanks();
        char c = at < text.length() ? text.charAt(at) : 0;
        return switch (c) {
            case '{' -> object(depth);
            case '[' -> array(depth);
            case '"' -> string();
            case 't' -> word("true", Boolean.TRUE);
            case 'f' -> word("false", Boolean.FALSE);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object(int depth) throws BadRecord {
        Map<String, Object> map = new LinkedHashMap<>();
        at++;
        blanks();
        if (take('}')) {
            return map;
        }
        do {
            blanks();
            if (at >= text.length() || text.charAt(at) != '"') {
                throw wrong("a name in quotes");
            }
            String name = string();
            blanks();
            need(':');
            map.put(name, value(depth + 1));
            blanks();
        } while (take(','));
        need('}');
        return map;
    }

    private List<Object> array(int depth) throws BadRecord {
        List<Object> list = new ArrayList<>();
        at++;
        blanks();
        if (take(']')) {
            return list;
        }
        do {
            list.add(value(depth + 1));
            blanks();
        } while (take(','));
        need(']');
        return list;
    }

    private String string() throws BadRecord {
        int begin = ++at;
        StringBuilder out = null; // made at the first escape: most strings have none
        while (at < text.length()) {
            char c = text.charAt(at);
            if (c == '"') {
                String plain = text.substring(begin, at++);
                return out == null ? plain : out.append(plain).toString();
            }
            if (c < 0x20) {
                throw wrong("an escape for a control character");
            }
            if (c == '\\') {
                out = out == null ? new StringBuilder() : out;
                out.append(text, begin, at);
                at++;
                out.append(escape());
                begin = at;
            } else {
                at++;
            }
        }
        throw wrong("a closing quote");
    }

    private char escape() throws BadRecord {
        char c = at < text.length() ? text.charAt(at) : 0;
        int simple = "\"\\/bfnrt".indexOf(c);
        if (simple >= 0) {
            at++;
            return "\"\\/\b\f\n\r\t".charAt(simple);
        }
        if (c != 'u' || at + 5 > text.length()) {
            throw wrong("an escape that JSON has");
        }
        int code = 0;
        for (int i = 1; i <= 4; i++) {
            char digit = text.charAt(at + i);
            int hex = digit < 128 ? Character.digit(digit, 16) : -1;
            if (hex < 0) {
                throw wrong("four hexadecimal digits");
            }
            code = code << 4 | hex;
        }
        at += 5;
        return (char) code;
    }

    private Object word(String word, Object value) throws BadRecord {
        if (!text.startsWith(word, at)) {
            throw wrong(word);
        }
        at += word.length();
        return value;
    }

    private Object number() throws BadRecord {
        int begin = at;
        boolean whole = true;
        take('-');
        if (!take('0') && digits() == 0) {
            throw wrong("a value");
        }
        if (take('.')) {
            whole = false;
            if (digits() == 0) {
                throw wrong("a digit");
            }
        }
        if (take('e') || take('E')) {
            whole = false;
            if (!take('+')) {
                take('-');
            }
            if (digits() == 0) {
                throw wrong("a digit");
            }
        }
        String number = text.substring(begin, at);
        try {
            return whole && number.length() < 19 ? (Object) Long.valueOf(number) : new BigDecimal(number);
        } catch (NumberFormatException beyond) { // an exponent that no BigDecimal has
            throw wrong("a number of sensible size");
        }
    }

    private int digits() {
        int begin = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        return at - begin;
    }

    private void blanks() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private boolean take(char c) {
        if (at < text.length() && text.charAt(at) == c) {
            at++;
            return true;
        }
        return false;
    }

    private void need(char c) throws BadRecord {
        if (!take(c)) {
            throw wrong("'" + c + "'");
        }
    }

    private BadRecord wrong(String needed) {
        String came = at < text.length() ? "'" + text.charAt(at) + "'" : "the end";
        return new BadRecord("needed " + needed + " at character " + at + " of the JSON text, got " + came);
    }
}
