"""An inspection as a terminal screen, CSV files, a recipe's fragment and a page."""
