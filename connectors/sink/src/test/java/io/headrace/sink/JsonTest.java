package io.headrace.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {
    @Test
    @DisplayName("All that JSON can say is read as it was meant")
    void reads() throws BadRecord {
        Map<String, Object> expected = new LinkedHashMap<>();
        expected.put("a", List.of(1L, -20L, new BigDecimal("1.5e3"), new BigDecimal("12345678901234567890")));
        expected.put("b", "q\"\\/\b\f\n\r\té😀");
        expected.put("c", null);
        expected.put("d", List.of(true, false, Map.of(), List.of()));
        String text = " {\"a\" : [1,-20,1.5e3,12345678901234567890],\r\n\"b\":"
                + "\"q\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83d\\ude00\",\"c\":null,\t\"d\":[true,false,{},[]]} ";
        assertEquals(expected, Json.parse(text));
    }

    @ParameterizedTest
    @DisplayName("What only resembles JSON is refused, as the index would refuse it")
    @ValueSource(strings = {"", " ", "{", "[", "[1,]", "{\"a\":1,}", "{a:1}", "{'a':1}", "{\"a\"}", "{\"a\":}", "01",
            "1.", ".5", "+1", "-", "1e", "NaN", "nul", "\"a", "\"\\x\"", "\"\\u12g4\"", "\"\\u12", "\"a\nb\"", "{} {}",
            "[1 2]", "{\"a\":1 \"b\":2}", "\uFEFF{}", "1e99999999999", "\"\\u\uFF11234\""})
    void refuses(String text) {
        assertThrows(BadRecord.class, () -> Json.parse(text));
    }

    @Test
    @DisplayName("Deep nesting is refused before it exhausts the stack, in reading and in writing")
    void bounded() {
        assertThrows(BadRecord.class, () -> Json.parse("[".repeat(100_000)));
        Object deep = List.of();
        for (int i = 0; i < 1_000; i++) {
            deep = List.of(deep);
        }
        Object nested = deep;
        assertThrows(BadRecord.class, () -> Json.write(nested, new StringBuilder()));
    }

    @Test
    @DisplayName("What is written reads back as it was, in one line")
    void writes() throws BadRecord {
        Map<String, Object> value = new LinkedHashMap<>();
        value.put("a\n\"", List.of("\u0001\\", 1L, new BigDecimal("0.25"), true, List.of(), Map.of()));
        value.put("none", null);
        StringBuilder out = new StringBuilder();
        Json.write(value, out);
        assertEquals(-1, out.indexOf("\n"));
        assertEquals(value, Json.parse(out.toString()));
    }

    @Test
    @DisplayName("A value that JSON cannot express is refused, not written as something else")
    void refusesToWrite() {
        for (Object value : List.of(Double.NaN, Float.POSITIVE_INFINITY, new Object(), Map.of(1, 2), new byte[0])) {
            assertThrows(BadRecord.class, () -> Json.write(value, new StringBuilder()));
        }
    }
}
