"""FedAIM: two servers, mediators for extremely biased clients, and an exchange of models.

What Astraea shares with it lives in `mediators`.
"""
