"""The crawl: stages in flow order, their pure core, and the runners that drive it."""
