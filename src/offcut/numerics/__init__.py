"""Numbers without a model: keys, arrays, text for messages, normal algebra, slice sampling."""
