"""Rigid contact: impulses within friction's boxes, Nimble's steps and Jade's impacts."""
