package io.headrace.sink;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * One record as a bulk request wants it: a line that says what to do, and for an upsert a line with the document.
 *
 * <p>The id is the record's key, a null value deletes, and the version is the record's own: taken from a header, so
 * that a delete has one too and a topic that is made anew does not begin at version zero. Offsets would do neither.
 * The version is external: the index takes it only above what it holds, so whatever comes twice, late or out of order
 * changes nothing.
 *
 * @param lines UTF-8, each line ended
 */
record Action(SinkRecord record, boolean delete, byte[] lines) {
    static final int ID_BYTES_MAX = 512; // OpenSearch refuses a whole bulk for one longer id

    /** Reads a record. BadRecord when any part of it is not what the index can take. */
    static Action of(SinkRecord record, String versionHeader, int documentBytesMax) throws BadRecord {
        String id = id(record.key());
        long version = version(record, versionHeader);
        boolean delete = record.value() == null;
        StringBuilder line = new StringBuilder(160);
        line.append(delete ? "{\"delete\":{\"_id\":" : "{\"index\":{\"_id\":");
        Json.writeString(id, line);
        line.append(",\"version\":").append(version).append(",\"version_type\":\"external\"}}\n");
        byte[] head = utf8(line);
        if (delete) {
            return new Action(record, true, head);
        }
        byte[] document = document(record.value());
        if (document.length > documentBytesMax) {
            throw new BadRecord("needed a document of at most " + documentBytesMax + " bytes, got " + document.length
                    + "; raise " + SinkSettings.DOCUMENT_BYTES_MAX + " if it is right");
        }
        ByteBuffer lines = ByteBuffer.allocate(head.length + document.length + 1);
        return new Action(record, false, lines.put(head).put(document).put((byte) '\n').array());
    }

    private static String id(Object key) throws BadRecord {
        String id;
        if (key instanceof String string) {
            id = string;
        } else if (key instanceof byte[] bytes) {
            id = text(bytes, "the key");
        } else {
            throw new BadRecord("needed a key, a string or UTF-8 bytes, as the document's id, got " + Json.kind(key));
        }
        int bytes = utf8(id).length;
        if (bytes == 0 || bytes > ID_BYTES_MAX) {
            throw new BadRecord("needed a key of 1 to " + ID_BYTES_MAX + " bytes as the document's id, got " + bytes);
        }
        return id;
    }

    /**
     * The header's version: a whole number of any width, or its decimal digits as a string or as ASCII bytes.
     *
     * <p>Nothing is guessed: eight bytes that are not digits are not taken for a binary number, 1.0 is not 1, and two
     * headers are one too many. A version read wrongly would bury a document under a number that nothing exceeds.
     */
    private static long version(SinkRecord record, String name) throws BadRecord {
        Iterator<Header> headers = record.headers().allWithName(name);
        if (!headers.hasNext()) {
            throw new BadRecord("needed a header " + name + " with the document's version, got none");
        }
        Object value = headers.next().value();
        if (headers.hasNext()) {
            throw new BadRecord("needed one header " + name + ", got several");
        }
        if (value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte) {
            long version = ((Number) value).longValue();
            if (version < 0) {
                throw new BadRecord("needed a version of 0 or more in the header " + name + ", got " + version);
            }
            return version;
        }
        if (value instanceof String string) {
            return digits(string, name);
        }
        if (value instanceof byte[] bytes) {
            return digits(text(bytes, "the header " + name), name);
        }
        throw new BadRecord("needed a whole number, or its digits, in the header " + name + ", got "
                + Json.kind(value));
    }

    private static long digits(String text, String name) throws BadRecord {
        boolean plain = !text.isEmpty() && text.length() <= 19 && text.chars().allMatch(c -> c >= '0' && c <= '9')
                && (text.length() == 1 || text.charAt(0) != '0');
        try {
            if (plain) {
                return Long.parseLong(text);
            }
        } catch (NumberFormatException beyond) { // nineteen digits can exceed 2^63 - 1
            plain = false;
        }
        String came = text.length() > 40 ? text.substring(0, 40) + "..." : text;
        throw new BadRecord("needed the digits of a number from 0 to 2^63 - 1, without sign, blank or leading zero, "
                + "in the header " + name + ", got '" + came + "'");
    }

    /** The document in one line. A text is passed on as it came: line ends outside strings are blanks to JSON. */
    private static byte[] document(Object value) throws BadRecord {
        if (value instanceof Map<?, ?>) {
            StringBuilder out = new StringBuilder(512);
            Json.write(value, out);
            return utf8(out);
        }
        if (!(value instanceof String) && !(value instanceof byte[])) {
            throw new BadRecord("needed a JSON object, got " + Json.kind(value)
                    + "; take ByteArrayConverter, or JsonConverter with schemas.enable=false, as value.converter");
        }
        byte[] document = value instanceof byte[] bytes ? bytes.clone() : utf8((String) value);
        Object parsed = Json.parse(value instanceof String string ? string : text(document, "the value"));
        if (!(parsed instanceof Map<?, ?>)) {
            throw new BadRecord("needed a JSON object, got " + Json.kind(parsed));
        }
        for (int i = 0; i < document.length; i++) {
            if (document[i] == '\n' || document[i] == '\r') {
                document[i] = ' ';
            }
        }
        return document;
    }

    private static String text(byte[] bytes, String what) throws BadRecord {
        try {
            return StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT)
                    .decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException e) {
            throw new BadRecord("needed UTF-8 in " + what + ", got other bytes");
        }
    }

    private static byte[] utf8(CharSequence text) throws BadRecord {
        try {
            ByteBuffer bytes = StandardCharsets.UTF_8.newEncoder().onMalformedInput(CodingErrorAction.REPORT)
                    .encode(java.nio.CharBuffer.wrap(text));
            byte[] exact = new byte[bytes.remaining()];
            bytes.get(exact);
            return exact;
        } catch (CharacterCodingException e) {
            throw new BadRecord("needed text that UTF-8 can express, got half of a surrogate pair");
        }
    }
}
