"""People answer questions about images: the page that asks, answers read back, what they say."""
