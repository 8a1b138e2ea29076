"""What crosses a boundary: the records, their Avro schemas and codec, and the topics that carry them."""
