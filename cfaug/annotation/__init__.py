"""People answer questions about images: the page that asks, reading answers, their evaluation."""
