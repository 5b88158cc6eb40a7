"""What clients compute beside their updates and send to the server."""
