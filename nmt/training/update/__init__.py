"""One update: loss, optimizer, schedule, precision, and the division of the work among the ranks."""
