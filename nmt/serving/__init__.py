"""The server: translates text over HTTP, with batches over requests, and a page to try it."""
