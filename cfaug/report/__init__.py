"""From the rows that runs leave behind to tables, figures and a page. No torch, no Lightning."""
