"""The other side of the comparison: a Scrapy spider that follows every link of one host and stores nothing.

Scrapy's defaults but for robots.txt (not asked), delay (0) and concurrency (as the crawl has it). The log level is
INFO, in Scrapy's favour: the default, DEBUG, writes a line a page. Links are followed in one of the two ways that its
documentation shows:

- `follow_all`, the tutorial's: every link of a page becomes a request, and the duplicates filter drops what is known;
- `extractor`: a LinkExtractor, which first drops the page's own repetitions and fragments. Fewer requests, less work.

    python -m tests.benchmarks.scrapy_spider URL CONCURRENCY WAY [PAGES]
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor

WAYS = ("follow_all", "extractor")


class FollowSpider(scrapy.Spider):
    """Counts pages."""

    name = "follow"

    def __init__(self, start: str, way: str, **more: Any) -> None:
        super().__init__(**more)
        assert way in WAYS, way
        self.way = way
        parts = urlsplit(start)
        self.start_url = start
        self.allowed_domains = [parts.hostname or ""]
        self.links = LinkExtractor(allow_domains=[parts.netloc])  # it compares with the port
        self.pages = 0

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(self.start_url)  # not Scrapy's own start, which would fetch this page twice

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        self.pages += 1
        if not isinstance(response, TextResponse):
            return
        if self.way == "follow_all":
            yield from response.follow_all(css="a, area", callback=self.parse)
        else:
            for link in self.links.extract_links(response):
                yield scrapy.Request(link.url, callback=self.parse)


def main() -> None:
    start, concurrency, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    pages_max = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    process = CrawlerProcess(
        {
            "ROBOTSTXT_OBEY": False,
            "DOWNLOAD_DELAY": 0,
            "CONCURRENT_REQUESTS": max(16, concurrency),
            "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
            "LOG_LEVEL": "INFO",
            "CLOSESPIDER_PAGECOUNT": pages_max,
        }
    )
    crawler = process.create_crawler(FollowSpider)
    process.crawl(crawler, start=start, way=way)
    process.start()
    assert isinstance(crawler.spider, FollowSpider)
    print(f"pages {crawler.spider.pages}")


if __name__ == "__main__":
    main()
