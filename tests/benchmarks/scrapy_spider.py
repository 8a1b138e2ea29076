"""The other side of the comparison: a Scrapy spider that follows every link of one host and stores nothing.

Scrapy's defaults but for robots.txt (not asked), delay (0) and concurrency (as the crawl has it). Links are found by
its own LinkExtractor, as its documentation does it. The log level is INFO, in Scrapy's favour: the default, DEBUG,
writes a line a page.

    python -m tests.benchmarks.scrapy_spider URL CONCURRENCY [PAGES]
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


class FollowSpider(scrapy.Spider):
    """Counts pages."""

    name = "follow"

    def __init__(self, start: str, **more: Any) -> None:
        super().__init__(**more)
        parts = urlsplit(start)
        self.start_url = start
        self.allowed_domains = [parts.hostname or ""]
        self.links = LinkExtractor(allow_domains=[parts.netloc])  # it compares with the port
        self.pages = 0

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(self.start_url)  # not Scrapy's own start, which would fetch this page twice

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        self.pages += 1
        if isinstance(response, TextResponse):
            for link in self.links.extract_links(response):
                yield scrapy.Request(link.url, callback=self.parse)


def main() -> None:
    start, concurrency = sys.argv[1], int(sys.argv[2])
    pages_max = int(sys.argv[3]) if len(sys.argv) > 3 else 0
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
    process.crawl(crawler, start=start)
    process.start()
    assert isinstance(crawler.spider, FollowSpider)
    print(f"pages {crawler.spider.pages}")


if __name__ == "__main__":
    main()
