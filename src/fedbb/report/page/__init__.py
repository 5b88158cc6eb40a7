"""Pages: each one HTML file with its data, style and script inside, and no network access."""
