"""The fault benchmark: what a broken engine costs, how soon nothing more is sent there, and how soon it is used again."""
