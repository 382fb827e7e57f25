"""What every long-running process offers over HTTP: health, readiness, metrics, state.

page_server      an HTTP/1.1 server for a few pages
metrics          the name of every metric
prometheus       stores values, and writes the text of a scrape
process_samples  metrics of the process itself: dropped lines, version

Who has something to tell adds pages of its own: `serving.plugin_pages`, `serving.driver_pages`.
"""
