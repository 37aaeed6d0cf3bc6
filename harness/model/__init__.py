"""What a case file says: cases, variants, policies, targets, and what identifies them."""
